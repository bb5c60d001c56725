"""A worker that is stopped or loops for ever is reported, and can be replaced."""

import pytest

from faults.scripts import run

pytestmark = pytest.mark.multiprocess

STALLS = {
    "stopped": "os.kill(os.getpid(), signal.SIGSTOP)",
    "loop": "loop_for_ever()",
}
SCRIPT = """
import logging
def loop_for_ever():
    while True:
        pass
warnings = []
warned = threading.Event()
class Collect(logging.Handler):
    # On a busy machine others may keep the consumer waiting for a second, too.
    def emit(self, record):
        text = record.getMessage()
        if about in text:
            warnings.append(text)
            warned.set()
about = "record 42"
logging.getLogger("gristmill").addHandler(Collect())
kind, once = sys.argv[1:]
clean = [At(-1, None)]
if kind == "filtered":
    clean = filtered(*clean)
reference = undisturbed(clean)
"""
KINDS = ["batches", "filtered"]


@pytest.mark.claim("stall_timeout=, stall_action=")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("stall", STALLS)
def test_restart_recovers(tmp_path, stall, kind):
    run(
        SCRIPT
        + f"fault = Once(once, lambda: {STALLS[stall]})"
        + """
operations = [*clean[:-1], At(42, fault)]
iterator = iter(loader(operations, stall_timeout=1, stall_action="restart"))
with in_time(15):
    rest = digest(iterator)
assert rest == reference
assert len(warnings) == 1, warnings
import re
assert re.match(r"No output for 1 s: worker [01] works on record 42 of stream 0[.]\\n",
                warnings[0]), warnings
assert "It is killed and started again." in warnings[0]
""",
        kind,
        tmp_path / "once",
    )


@pytest.mark.claim("stall_timeout=, stall_action=")
@pytest.mark.claim(
    "How many processes compute, and how fast each one is, never shows in the data."
)
@pytest.mark.parametrize("kind", KINDS)
def test_warning_shows_the_python_stack_and_the_worker_may_go_on(tmp_path, kind):
    run(
        SCRIPT
        + """
def wait_for_it():
    for _ in wait_until("the warning"):
        if os.path.exists(once):
            return
operations = [*clean[:-1], At(42, wait_for_it)]
iterator = iter(loader(operations, stall_timeout=1))
def go_on():
    warned.wait()
    open(once, "w").close()
threading.Thread(target=go_on).start()
with in_time(15):
    rest = digest(iterator)
assert rest == reference
assert len(warnings) == 1, warnings
text = warnings[0]
import re
assert re.search("worker [01] works on record 42 of stream 0", text), text
assert "in wait_for_it" in text and 'toolbox.py", line' in text, text
assert 'stall_action="restart"' in text
""",
        kind,
        tmp_path / "go",
    )


def test_stopped_worker_is_reported_as_silent_and_goes_on_when_continued(tmp_path):
    run(
        SCRIPT
        + """
def stop():
    os.kill(os.getpid(), signal.SIGSTOP)
iterator = iter(loader([At(42, Once(once, stop))], stall_timeout=1))
def go_on():
    warned.wait()
    for pid in family(2)["worker"]:
        os.kill(pid, signal.SIGCONT)
threading.Thread(target=go_on).start()
with in_time(15):
    rest = digest(iterator)
assert rest == reference
assert "record 42" in warnings[0] and "does not answer" in warnings[0], warnings
""",
        "batches",
        tmp_path / "once",
    )


def test_every_try_that_stalls_counts_as_a_death():
    run(
        SCRIPT
        + """
operations = [At(42, loop_for_ever)]
iterator = iter(loader(operations, stall_timeout=1, stall_action="restart"))
error = expect(g.errors.WorkerDied, lambda: list(iterator), 15)
assert "was killed by SIGKILL" in str(error) and "record 42" in str(error), error
assert len(warnings) == 2, warnings
assert all("works on record 42" in text for text in warnings), warnings
""",
        "batches",
        "unused",
    )


def test_start_that_takes_long_is_no_workers_fault_and_kills_none():
    run(
        SCRIPT
        + """
class Slow(g.MapTransform):
    def __setstate__(self, state):
        threading.Event().wait(1.5)
    def map(self, x):
        return x
slow = Slow()
slow.state = 1
about = ""
iterator = iter(loader([slow], stall_timeout=0.5, stall_action="restart"))
assert digest(iterator) == undisturbed([])
words = "No output for 0.5 s: no worker has begun the next one of stream 0"
assert words in warnings[0], warnings
assert "killed" not in warnings[0] and "-1" not in warnings[0], warnings
""",
        "batches",
        "unused",
    )


@pytest.mark.parametrize("kind", KINDS)
def test_idle_workers_that_are_stopped_are_replaced(kind):
    run(
        SCRIPT
        + """
about = "It is killed"
iterator = iter(loader(clean, stall_timeout=0.5, stall_action="restart"))
seen = [next(iterator)]
stopped = family(2)["worker"]
for pid in stopped:
    os.kill(pid, signal.SIGSTOP)
with in_time(15):
    seen += iterator
assert digest(seen) == reference
assert warnings
assert set(stopped) != set(family(2)["worker"])
""",
        kind,
        "unused",
    )


def test_worker_that_is_stopped_in_its_start_is_replaced(tmp_path):
    run(
        SCRIPT
        + """
def stop():
    os.kill(os.getpid(), signal.SIGSTOP)
class AtBirth(g.MapTransform):
    def __setstate__(self, state):
        os.register_at_fork(after_in_child=state["fault"])
    def map(self, x):
        return x
at_birth = AtBirth()
at_birth.fault = Once(once, stop)
about = "killed"
iterator = iter(loader([at_birth], workers=1, stall_timeout=0.3,
                       stall_action="restart"))
with in_time(15):
    assert digest(iterator) == reference
assert os.path.exists(once)
assert "worker 0 has not begun the next one of stream 0" in warnings[0], warnings
""",
        "batches",
        tmp_path / "once",
    )


def test_worker_that_never_comes_back_from_a_withdrawn_unit_is_replaced(tmp_path):
    run(
        SCRIPT
        + """
def stay():
    open(once, "w").close()
    loop_for_ever()
iterator = iter(loader([At(42, stay)], workers=1, stall_timeout=1,
                       stall_action="restart", max_restarts=10))
state = iterator.get_state()
seen = [next(iterator) for _ in range(9)]
for _ in wait_until("a worker that stays"):
    if os.path.exists(once):
        break
iterator.set_state(state)
with in_time(15):
    assert digest([next(iterator)]) == reference[:1]
assert len(warnings) == 1, warnings
""",
        "batches",
        tmp_path / "in_it",
    )


def test_timeout_none_says_nothing(tmp_path):
    run(
        SCRIPT
        + """
def wait_a_while():
    threading.Event().wait(1.5)
about = ""
iterator = iter(loader([At(42, wait_a_while)], stall_timeout=None))
assert digest(iterator) == reference
assert warnings == []
assert loader([])._remote.stall_timeout == 60
""",
        "batches",
        "unused",
    )
