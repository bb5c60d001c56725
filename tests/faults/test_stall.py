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
    def emit(self, record):
        warnings.append(record.getMessage())
        warned.set()
logging.getLogger("gristmill").addHandler(Collect())
kind, once = sys.argv[1:]
clean = [At(-1, None)]
if kind == "filtered":
    clean = filtered(*clean)
reference = undisturbed(clean)
"""
KINDS = ["batches", "filtered"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("stall", STALLS)
def test_restart_recovers(tmp_path, stall, kind):
    run(
        SCRIPT
        + f"fault = Once(once, lambda: {STALLS[stall]})"
        + """
operations = [*clean[:-1], At(42, fault)]
iterator = iter(loader(operations, stall_timeout=1, stall_action="restart"))
with in_time(5):
    rest = digest(iterator)
assert rest == reference
assert len(warnings) == 1, warnings
assert "No output for 1 s: worker 0 works on record 42 of stream 0" in warnings[0]
assert "It is killed and started again." in warnings[0]
""",
        kind,
        tmp_path / "once",
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
with in_time(5):
    rest = digest(iterator)
assert rest == reference
assert len(warnings) == 1, warnings
text = warnings[0]
assert "worker 0 works on record 42 of stream 0" in text
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
with in_time(6):
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
iterator = iter(loader(operations, stall_timeout=0.3, stall_action="restart"))
error = expect(g.errors.WorkerDied, lambda: list(iterator), 10)
assert "was killed by SIGKILL" in str(error) and "record 42" in str(error), error
assert len(warnings) == 2, warnings
""",
        "batches",
        "unused",
    )
