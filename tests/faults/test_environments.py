"""Where Python code comes from, and what else its process does, is no matter."""

import subprocess
import sys
import textwrap

import nbformat
import pytest
from nbclient import NotebookClient

from faults.scripts import environment, run

pytestmark = pytest.mark.multiprocess

# No guard around what starts processes, and nothing that pickle alone can send.
SCRIPT = """
import numpy as np
import gristmill as g
offset = 100
def closure(by):
    class Shift(g.MapTransform):
        def map(self, x):
            return x + by + offset
    return Shift()
class Times(g.RandomMapTransform):
    def __init__(self, function):
        self.function = function
    def random_map(self, x, rng):
        return self.function(x) + rng.integers(5)
def run(workers):
    loader = g.DataLoader(
        data_source=[{"x": np.int64(i)} for i in range(40)],
        sampler=g.IndexSampler(40, shuffle=True, seed=3, num_epochs=1),
        operations=[closure_of_dicts, closure(7), Times(lambda x: x * offset),
                    g.Batch(4)],
        worker_count=workers, streams=2)
    return [batch.tolist() for batch in loader]
class Get(g.MapTransform):
    def map(self, x):
        return x["x"]
closure_of_dicts = Get()
assert run(2) == run(0)
print("equal")
"""


def test_python_c():
    assert run(SCRIPT, bare=True) == "equal\n"


@pytest.mark.claim("scripts with workers need a __main__ guard")
def test_script_without_a_main_guard(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    text = "import runpy, sys; runpy.run_path(sys.argv[1], run_name='__main__')"
    assert run(text, tmp_path / "script.py", bare=True) == "equal\n"
    direct = subprocess.run(
        [sys.executable, tmp_path / "script.py"],
        env=environment(), capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert (direct.stdout, direct.stderr) == ("equal\n", "")


def test_script_from_standard_input():
    done = subprocess.run(
        [sys.executable, "-"],
        input=SCRIPT, env=environment(), capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert (done.stdout, done.stderr) == ("equal\n", "")


def test_jupyter_kernel():
    cells = [
        SCRIPT,
        "iterator = iter(g.DataLoader(data_source=np.arange(99), worker_count=2,"
        " sampler=g.SequentialSampler(99)))\nprint(next(iterator))",
        "class Get(g.MapTransform):\n    def map(self, x):\n        return x['x'] + 1\n"
        "closure_of_dicts = Get()\nassert run(2) == run(0)\nprint(next(iterator))",
    ]
    notebook = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(cell) for cell in cells]
    )
    client = NotebookClient(notebook, timeout=60, kernel_name="python3")
    client.execute(env=environment())
    printed = [
        "".join(o.text for o in cell.outputs if o.name == "stdout")
        for cell in notebook.cells
    ]
    assert printed == ["equal\n", "0\n", "1\n"]


def test_pytest_xdist(tmp_path):
    (tmp_path / "test_inner.py").write_text(
        SCRIPT.replace("assert run(2) == run(0)", "").replace('print("equal")', "")
        + "import pytest\n@pytest.mark.parametrize('number', range(4))\n"
        "def test_equal(number):\n    assert run(2) == run(0)\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n", "2", "-p", "no:cacheprovider",
         "-c", "/dev/null", "--rootdir", tmp_path, tmp_path],
        env=environment(), capture_output=True, text=True, timeout=90, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 passed" in done.stdout


MANY_STARTS = """
import jax.numpy
jax.numpy.ones(9).sum().block_until_ready()
stop = threading.Event()
def be_busy():
    while not stop.is_set():
        # One half in Python, one half in the allocator, without the GIL.
        sum(range(1000))
        np.sort(np.random.rand(20_000))
threads = [threading.Thread(target=be_busy) for _ in range(8)]
for thread in threads:
    thread.start()
try:
    reference = undisturbed([Add()])
    for number in range(int(sys.argv[1])):
        iterator = iter(loader([Add()]))
        assert digest([next(iterator)]) == reference[:1], number
        if number % 3 == 0:
            assert digest(iterator) == reference[1:]
finally:
    stop.set()
"""


@pytest.mark.parametrize(
    "starts", [30, pytest.param(200, marks=pytest.mark.soak)], ids=str
)
def test_jax_and_8_busy_threads_in_the_parent_over_many_starts(starts):
    run(MANY_STARTS, starts, deadline_s=280)


def test_program_that_cannot_be_loaded_says_why():
    run(
        textwrap.dedent("""
        class Bad(g.MapTransform):
            def __setstate__(self, state):
                raise ImportError("no such thing here")
            def map(self, x):
                return x
        bad = Bad()
        bad.some = 1
        error = expect(g.errors.WorkerDied, lambda: next(iter(loader([bad]))))
        assert "no such thing here" in str(error), error
        assert "worker_count=0" in str(error)
        """)
    )


def test_directory_that_is_gone_and_closed_streams(tmp_path):
    run(
        """
        os.chdir(sys.argv[1])
        os.rmdir(sys.argv[1])
        sys.stdout.close()
        sys.stdin.close()
        sys.stdout = sys.stdin = None
        assert digest(loader([Add()])) == undisturbed([Add()])
        """,
        (tmp_path / "gone").mkdir() or tmp_path / "gone",
    )
