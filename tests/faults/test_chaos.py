"""Much at once, at bad moments, in odd places: it works, or says why it cannot."""

import subprocess
import sys

import pytest

from faults.scripts import environment, run

pytestmark = pytest.mark.multiprocess

# Threads that start, use, rewind and drop loaders, while all around them die.
UPROAR = """
import random
from faults.toolbox import children
seconds, seed = float(sys.argv[1]), int(sys.argv[2])
chance = random.Random(seed)
stop = threading.Event()
failures = []
OPERATIONS = [[Add()], filtered(Add())]
REFERENCES = [undisturbed(operations, records=400) for operations in OPERATIONS]
def use(chance):
    kind = chance.randrange(2)
    reference = REFERENCES[kind]
    options = dict(records=400, workers=chance.randrange(1, 4), max_restarts=100)
    options |= dict(stall_timeout=1, stall_action="restart")
    iterator = iter(loader(OPERATIONS[kind], **options))
    states = [iterator.get_state()]
    at = 0
    for _ in range(chance.randrange(60)):
        if chance.random() < 0.1:
            at = chance.randrange(len(states))
            iterator.set_state(states[at])
        if at == len(reference):
            assert next(iterator, None) is None
            break
        assert digest([next(iterator)]) == reference[at:at + 1], at
        at += 1
        if at == len(states):
            states.append(iterator.get_state())
        assert iterator.get_state() == states[at]
    if chance.random() < 0.5:
        iterator.close()
    elif chance.random() < 0.5:
        assert digest(iterator) == reference[at:]
def work(seed):
    chance = random.Random(seed)
    try:
        while not stop.is_set():
            use(chance)
    except BaseException as error:
        failures.append(repr(error))
        stop.set()
        raise
def disturb():
    launchers = children(os.getpid())
    zygotes = [z for launcher in launchers for z in children(launcher)]
    workers = [w for zygote in zygotes for w in children(zygote)]
    kind = chance.choices([launchers, zygotes, workers, None], [1, 2, 20, 15])[0]
    victims = workers if kind is None else kind
    if not victims or not workers:
        return
    pid = chance.choice(victims)
    with contextlib.suppress(ProcessLookupError):
        if kind is not None:
            os.kill(pid, signal.SIGKILL)
            # Three of those who start workers, before any has started, are an error.
            stop.wait(0 if kind is workers else 0.7)
            return
        os.kill(pid, signal.SIGSTOP)
        stop.wait(0.02)
        os.kill(pid, signal.SIGCONT)
threads = [threading.Thread(target=work, args=(seed + i,)) for i in range(4)]
for thread in threads:
    thread.start()
end = time.monotonic() + seconds
while time.monotonic() < end and not stop.wait(chance.random() * 0.03):
    disturb()
stop.set()
for thread in threads:
    thread.join(20)
    assert not thread.is_alive()
assert not failures, failures
assert len(os.listdir("/proc/self/fd")) < 16
"""


def test_uproar():
    run(UPROAR, 5, 1)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(2, 6))
def test_long_uproar(seed):
    run(UPROAR, 60, 10 * seed, deadline_s=120)


def test_children_forked_between_threads_that_iterate():
    run(
        """
        reference = undisturbed([Add()], records=800)
        assert digest(loader([Add()], records=800)) == reference
        stop = threading.Event()
        failures = []
        def work():
            try:
                while not stop.is_set():
                    assert digest(loader([Add()], records=800)) == reference
            except BaseException as error:
                failures.append(repr(error))
        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        for _ in range(3):
            child = os.fork()
            if child == 0:
                status = 1
                try:
                    found = digest(loader([Add()], workers=1))
                    status = 0 if found == undisturbed([Add()]) else 2
                finally:
                    os._exit(status)
            assert os.waitpid(child, 0)[1] == 0
        stop.set()
        for thread in threads:
            thread.join()
        assert not failures, failures
        """
    )


@pytest.mark.parametrize("what", ["iterating", "starting"])
def test_exit_while_daemon_threads_are_at_it(what):
    run(
        f"what = {what!r}"
        + """
from faults.scripts import run
for number in range(5):
    run('''
        def work():
            while True:
                iterator = iter(loader([Add()], records=300))
                next(iterator)
                if sys.argv[1] == "iterating":
                    list(iterator)
        list(loader([Add()]))
        for _ in range(4):
            threading.Thread(target=work, daemon=True).start()
        threading.Event().wait(float(sys.argv[2]))
        ''', what, 0.1 + number / 10)
"""
    )


@pytest.mark.parametrize("registered", ["before", "after"])
def test_loader_at_exit(registered):
    out = run(
        f"registered = {registered!r}"
        + """
import atexit
def last():
    assert digest(loader([Add()])) == undisturbed([Add()])
    kept.append(iter(loader([Add()])))
    next(kept[-1])
    print("done")
kept = []
if registered == "before":
    atexit.register(last)
next(iter(loader([Add()])))
if registered == "after":
    atexit.register(last)
"""
    )
    assert out == "done\n"


def test_iterators_that_are_collected_at_the_very_end():
    run(
        """
        import builtins
        class Cycle:
            pass
        cycle = Cycle()
        cycle.itself = cycle
        cycle.iterator = iter(loader([Add()], records=100_000))
        cycle.batch = next(cycle.iterator)
        def generate():
            yield from iter(loader([Add()], records=100_000))
        builtins.generator = generate()
        next(builtins.generator)
        builtins.cycle = cycle
        """
    )


def test_64_workers():
    run(
        """
        reference = undisturbed([Add()], records=2000)
        iterator = iter(loader([Add()], records=2000, workers=64))
        with in_time(20):
            assert digest(iterator) == reference
        """
    )


def test_closed_standard_streams_are_nothing_of_the_engine(tmp_path):
    run(
        """
        import os, sys
        for fd in range(3):
            os.close(fd)
        from faults.toolbox import *
        import ctypes
        def complain():
            for fd in range(3):
                ctypes.CDLL(None).dprintf(fd, b"a complaint of some library\\n")
        class Noisy(g.MapTransform):
            def map(self, x):
                complain()
                return x
        iterator = iter(loader([Noisy()]))
        found = []
        for batch in iterator:
            found.append(batch)
            complain()
            assert not any(os.path.exists(f"/proc/self/fd/{fd}") for fd in range(3))
        assert digest(found) == undisturbed([])
        open(sys.argv[1], "w").close()
        """,
        tmp_path / "done",
        bare=True,
    )
    assert (tmp_path / "done").exists()


def test_descriptors_that_the_user_closes_hang_nobody():
    run(
        """
        iterator = iter(loader([Add()], records=100_000))
        next(iterator)
        ending = [os.dup2(fd, 300 + fd) for fd in watched(family(2)["worker"])]
        os.closerange(3, 256)
        with in_time():
            iterator.close()
            await_gone(ending)
        assert digest(loader([Add()])) == undisturbed([Add()])
        """
    )


FLAGS = ["-I", "-OO", "-X dev", "-E -s -B", "-W error", "-X utf8=0 -b"]


@pytest.mark.parametrize("flags", FLAGS)
def test_interpreter_options(flags):
    paths = environment()["PYTHONPATH"].split(":")
    text = f"""if True:
        import sys
        sys.path[:0] = {paths}
        from faults.toolbox import *
        found = digest(loader([Add()]))
        if found != undisturbed([Add()]) or len(found) != 24:
            raise SystemExit("it differs")
    """
    done = subprocess.run(
        [sys.executable, *flags.split(), "-c", text],
        env=environment(), capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")


def test_odd_paths_arguments_and_environments():
    run(
        """
        import pathlib
        sys.path[:0] = [pathlib.Path("/nonexistent"), "/with'quotes\\"\\n", "/\\udcff"]
        sys.argv.append("\\udcff")
        os.environb[b"ODD"] = b"\\xff\\xfe=\\n"
        for number in range(2000):
            os.environ[f"LONG_{number}"] = "x" * 400
        class Look(g.MapTransform):
            def map(self, x):
                assert os.environb[b"ODD"] == b"\\xff\\xfe=\\n"
                assert sys.argv[-1] == "\\udcff" and sys.path[2] == "/\\udcff"
                return x
        assert digest(loader([Look()])) == undisturbed([])
        """
    )


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        ("sys.executable = ''", "sys.executable is empty"),
        ("sys.executable = None", "sys.executable is empty"),
        ("sys.executable = '/no/such'", "/no/such: No such file or directory"),
        ("os.environ.update({f'L{i}': 'x' * 999 for i in range(9999)})", "too long"),
        ("no_fork()", "Resource temporarily unavailable"),
    ],
)
def test_start_that_is_impossible_says_why(tmp_path, spoil, words):
    (tmp_path / "sitecustomize.py").write_text(
        "import os, sys\n"
        "def fail():\n    raise BlockingIOError(11, os.strerror(11))\n"
        "if 'gristmill._workers.launcher' in ' '.join(sys.orig_argv): os.fork = fail\n"
    )
    run(
        f"""
        def no_fork():
            os.environ["PYTHONPATH"] = sys.argv[1] + ":" + os.environ["PYTHONPATH"]
        executable = sys.executable
        {spoil}
        iterator = iter(loader([Add()]))
        try:
            with in_time():
                next(iterator)
        except (g.errors.WorkerDied, RuntimeError) as error:
            assert sys.argv[2] in str(error), error
        else:
            raise AssertionError
        assert "worker_count=0" in str(error) or "use no workers" in str(error)
        """.replace("as error:", "as caught:\n            error = caught"),
        tmp_path,
        words,
    )


def test_too_few_descriptors_are_an_error_and_no_hang():
    out = run(
        """
        import resource
        reference = undisturbed([Add()])
        worked = []
        for most in (4, 8, 10, 12, 14, 16, 20, 30):
            child = os.fork()
            if child == 0:
                resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
                try:
                    with in_time():
                        os._exit(0 if digest(loader([Add()])) == reference else 1)
                except (OSError, g.errors.WorkerDied) as error:
                    known = "Too many open files", "no descriptors left"
                    os._exit(2 if any(k in str(error) for k in known) else 3)
                finally:
                    os._exit(4)
            worked.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        assert set(worked) == {0, 2}, worked
        assert worked == sorted(worked, reverse=True), worked
        """
    )
    assert out == ""


def test_too_little_address_space_is_an_error_and_no_hang():
    run(
        """
        import resource
        reference = undisturbed([Add()])
        worked = []
        for mib in (250, 400, 700, 3000):
            child = os.fork()
            if child == 0:
                limit = mib << 20
                resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
                try:
                    with in_time():
                        os._exit(0 if digest(loader([Add()])) == reference else 1)
                except (OSError, MemoryError, g.errors.WorkerDied):
                    os._exit(2)
                finally:
                    os._exit(4)
            worked.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        assert set(worked) <= {0, 2} and worked[-1] == 0, worked
        """
    )
