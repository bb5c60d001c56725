"""One fault each: it is survived, or named, or ends the run cleanly, within 3 s."""

import pytest

from faults.scripts import run

pytestmark = pytest.mark.multiprocess

# A pipeline of each kind: units that anybody computes, and streams with owners.
KINDS = {"batches": "[{}]", "filtered": "filtered({})", "single": "[{}]"}
DEATHS = {
    "SIGKILL": "os.kill(os.getpid(), signal.SIGKILL)",
    "SIGSEGV": "os.kill(os.getpid(), signal.SIGSEGV)",
    "exit-0": "os._exit(0)",
    "exit-3": "os._exit(3)",
}
EVERYTHING = """
operations = {operations}
options = dict(batch=0 if {kind!r} == "single" else 4)
"""


def pipeline(kind: str, fault: str) -> str:
    return EVERYTHING.format(operations=KINDS[kind].format(fault), kind=kind)


@pytest.mark.claim("a worker that exits with code 0 hangs the parent")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("death", DEATHS)
def test_work_of_a_dead_worker_is_done_by_another(tmp_path, death, kind):
    fault = f"At(42, Once(sys.argv[1], lambda: {DEATHS[death]}))"
    clean = pipeline(kind, "Add()").replace("Add()", "At(-1, None)")
    run(
        clean
        + "reference = undisturbed(operations, **options)"
        + pipeline(kind, fault)
        + """
iterator = iter(loader(operations, **options))
check_rest(iterator, reference, 0)
assert os.path.exists(sys.argv[1])
""",
        tmp_path / "done",
    )


@pytest.mark.claim("a worker that exits with code 0 hangs the parent")
@pytest.mark.claim(
    "One that dies again on the same batch raises WorkerDied, which names the signal, "
    "the record and what to do."
)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("death", "cause"),
    [
        ("SIGKILL", "was killed by SIGKILL (exit code -9)"),
        ("SIGSEGV", "was killed by SIGSEGV (exit code -11)"),
        ("exit-0", "exited with exit code 0"),
        ("exit-3", "exited with exit code 3"),
    ],
)
def test_record_that_always_kills_is_named_after_all_before_it(death, cause, kind):
    clean = pipeline(kind, "At(-1, None)")
    run(
        clean
        + "reference = undisturbed(operations, **options)"
        + pipeline(kind, f"At(42, lambda: {DEATHS[death]})")
        + """
iterator = iter(loader(operations, **options))
before = []
def drain():
    for element in iterator:
        before.append(element)
error = expect(g.errors.WorkerDied, drain)
assert sys.argv[1] in str(error), error
assert "on record 42 of stream 0, 2 times in a row (max_restarts=1)" in str(error)
assert "use fewer workers or smaller batches" in str(error), error
# Single elements are computed in runs of 16 of a stream: the run is what died.
place = {"single": 32, "filtered": 6, "batches": 10}[sys.argv[2]]
assert digest(before) == reference[:place], (len(before), place)
again = expect(g.errors.WorkerDied, lambda: next(iterator))
assert str(again) == str(error)
""",
        cause,
        kind,
    )


@pytest.mark.claim("max_restarts=")
def test_max_restarts_counts_the_tries(tmp_path):
    run(
        """
        def note():
            with open(sys.argv[1], "a") as file:
                file.write("x")
            os._exit(1)
        for restarts in (0, 3):
            open(sys.argv[1], "w").close()
            dies = loader([At(9, note)], max_restarts=restarts)
            error = expect(g.errors.WorkerDied, lambda: list(dies))
            assert f"{restarts + 1} times in a row" in str(error), error
            with open(sys.argv[1]) as file:
                assert file.read() == "x" * (restarts + 1)
        """,
        tmp_path / "tries",
    )


@pytest.mark.parametrize("batch", [0, 4])
def test_element_that_cannot_be_pickled_is_an_error_and_the_rest_goes_on(batch):
    run(
        """
        batch = int(sys.argv[1])
        class Lock(g.MapTransform):
            def map(self, x):
                return {"x": x, "lock": threading.Lock()} if x == 46 else {"x": x}
        first = lambda xs: xs[-1]
        if batch:
            lock = [Lock(), g.Batch(batch, batch_fn=first)]
        else:
            lock = [Lock()]
        iterator = iter(loader(lock, batch=0))
        seen = []
        def drain():
            for element in iterator:
                seen.append(int(element["x"]))
        error = expect(TypeError, drain)
        assert "cannot pickle '_thread.lock' object" in str(error), error
        assert any("while sending an output" in n for n in error.__notes__)
        drain()
        if batch:
            reference = [int(x[-1]) for x in loader([], batch=batch, workers=0)]
        else:
            reference = [int(x) for x in loader([], batch=0, workers=0)]
        assert seen == [x for x in reference if x != 46], seen
        """,
        batch,
    )


@pytest.mark.parametrize("workers", [0, 2])
def test_exception_in_the_consumer_leaves_the_iterator_exact(workers):
    run(
        """
        workers = int(sys.argv[1])
        reference = undisturbed([Add()])
        iterator = iter(loader([Add()], workers=workers))
        def consume():
            for number, batch in enumerate(iterator):
                if number == 4:
                    raise ZeroDivisionError
        expect(ZeroDivisionError, consume)
        state = iterator.get_state()
        check_rest(iterator, reference, 5)
        fresh = iter(loader([Add()], workers=workers))
        fresh.set_state(state)
        check_rest(fresh, reference, 5)
        """,
        workers,
    )


@pytest.mark.parametrize("busy", [False, True])
def test_break_and_del_end_the_workers_and_keep_the_arrays(busy):
    run(
        """
        busy = sys.argv[1] == "True"
        def hang():
            threading.Event().wait()
        operations = [At(60, hang)] if busy else []
        iterator = iter(loader(operations, records=400))
        kept = []
        for number, batch in enumerate(iterator):
            kept.append(batch)
            if number == 3:
                break
        pids = family(2)
        ending = watched(pids["worker"] + pids["zygote"])
        with in_time():
            del iterator
            await_gone(ending)
        assert digest(kept) == undisturbed([], records=400)[:4]
        kept[0][:] = 7
        assert kept[0].tolist() == [7] * 4
        # The launcher stays for the next iterator.
        assert digest(loader([Add()])) == undisturbed([Add()])
        """,
        busy,
    )


@pytest.mark.parametrize("kind", KINDS)
def test_keyboard_interrupt_while_waiting_loses_nothing(tmp_path, kind):
    run(
        pipeline(kind, "At(-1, None)")
        + "reference = undisturbed(operations, **options)"
        + pipeline(kind, "At(42, Once(sys.argv[1], wait_for_it))").replace(
            "operations =", WAIT + "operations =", 1
        )
        + """
iterator = iter(loader(operations, **options))
seen = []
def drain():
    for element in iterator:
        seen.append(element)
place = {"single": 32, "filtered": 6, "batches": 10}[sys.argv[2]]
def interrupt():
    for _ in wait_until("a worker that hangs"):
        if os.path.exists(sys.argv[1]) and len(seen) == place:
            break
    await_parked(threading.main_thread().native_id)
    os.kill(os.getpid(), signal.SIGINT)
threading.Thread(target=interrupt).start()
expect(KeyboardInterrupt, drain, deadline_s=10)
assert len(seen) == place, len(seen)
state = iterator.get_state()
open(sys.argv[1] + "-go", "w").close()
check_rest(iterator, reference, len(seen))
fresh = iter(loader(operations, **options))
fresh.set_state(state)
check_rest(fresh, reference, len(seen))
""",
        tmp_path / "hangs",
        kind,
    )


WAIT = """
def wait_for_it():
    for _ in wait_until("the go"):
        if os.path.exists(sys.argv[1] + "-go"):
            return
"""


@pytest.mark.claim("messages at interpreter exit")
@pytest.mark.parametrize("how", ["run out", "sys.exit(3)", "1 / 0", "in a thread"])
def test_interpreter_exit_with_workers_running_is_quiet_and_quick(how):
    run(
        """
        from faults.scripts import start
        body = '''
        iterator = iter(loader([Add()], records=100_000))
        kept = next(iterator)
        print(*family(2)["worker"], flush=True)
        HOW
        '''
        how = sys.argv[1]
        line = {
            "run out": "",
            "in a thread": "threading.Thread(target=list, args=(iterator,), "
            "daemon=True).start()",
        }.get(how, how)
        with start(body.replace("HOW", line)) as script:
            ending = watched(map(int, script.stdout.readline().split()))
            assert len(ending) == 2
            with in_time():
                code = script.wait(10)
                await_gone(ending)
            assert code == {"sys.exit(3)": 3, "1 / 0": 1}.get(how, 0), code
            error = script.stderr.read()
            assert error == "" or how == "1 / 0", error
            assert "Exception ignored" not in error
        """,
        how,
    )


@pytest.mark.parametrize("kind", ["batches", "filtered"])
def test_fork_of_the_users_process_while_iterating(kind):
    run(
        pipeline(kind, "At(-1, None), Wide()").replace("operations =", WIDE, 1)
        + """
reference = undisturbed(operations, **options)
iterator = iter(loader(operations, **options))
kept = [next(iterator) for _ in range(3)]
copies = digest(kept)
child = os.fork()
if child == 0:
    status = 1
    try:
        error = expect(RuntimeError, lambda: next(iterator))
        assert "fork" in str(error)
        assert digest(kept) == copies
        for array in kept:
            array[:] = 9
        kept.clear()
        iterator.get_state()
        iterator.close()
        del iterator
        # It can have workers of its own.
        assert digest(loader([Add()])) == undisturbed([Add()])
        status = 0
    finally:
        import traceback
        if status:
            traceback.print_exc()
        os._exit(status)
rest = []
for element in iterator:
    rest.append(element)
    kept.append(element)
assert os.waitpid(child, 0)[1] == 0
assert digest(rest) == reference[3:]
assert digest(kept[3:]) == reference[3:]
"""
    )


# Leaves too large to be copied out of their slots.
WIDE = """
class Wide(g.MapTransform):
    def map(self, x):
        return np.full(20_000, x)
operations ="""


def test_iterator_of_a_thread_that_ends():
    run(
        """
        made = []
        def make():
            iterator = iter(loader([Add()]))
            made.append((iterator, next(iterator)))
        thread = threading.Thread(target=make)
        thread.start()
        thread.join()
        for _ in wait_until("the end of the thread"):
            if str(thread.native_id) not in os.listdir("/proc/self/task"):
                break
        (iterator, first), = made
        reference = undisturbed([Add()])
        assert digest([first]) == reference[:1]
        check_rest(iterator, reference, 1)
        """
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("victim", ["launcher", "zygote"])
def test_launcher_or_zygote_killed(victim, kind):
    run(
        pipeline(kind, "At(-1, None)")
        + "options['records'] = 2000"
        + f"\nvictim = {victim!r}"
        + """
reference = undisturbed(operations, **options)
iterator = iter(loader(operations, **options))
seen = [next(iterator)]
pids = family(2)
ending = watched(pids["worker"] + pids[victim])
os.kill(pids[victim][0], signal.SIGKILL)
await_gone(ending)
check_rest(iterator, reference, 1)
"""
    )


def test_sigchld_ignored_and_children_reaped_by_the_user():
    run(
        """
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        reference = undisturbed([Add()], records=2000)
        iterator = iter(loader([Add()], records=2000))
        next(iterator)
        pids = family(2)
        os.kill(pids["worker"][0], signal.SIGKILL)
        os.kill(pids["launcher"][0], signal.SIGKILL)
        check_rest(iterator, reference, 1)
        """
    )
