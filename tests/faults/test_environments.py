"""Workers run for every origin of the code and despite other work in the process."""

import subprocess
import sys

import nbformat
import pytest
from nbclient import NotebookClient

from faults.scripts import PROGRAMS, environment, run

pytestmark = pytest.mark.multiprocess

# It has no main guard, and its functions cannot be pickled by pickle itself.
PROGRAM = PROGRAMS / "faults" / "environments" / "without_main_guard.py"


def outcome(*arguments, text=None):
    """Return the output and errors of Python with these arguments and this input."""
    done = subprocess.run(
        [sys.executable, *arguments],
        input=text, env=environment(), capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    return done.stdout, done.stderr


def test_python_c():
    assert outcome("-c", PROGRAM.read_text()) == ("equal\n", "")


@pytest.mark.claim("Scripts with workers need a __main__ guard")
def test_script_without_a_main_guard():
    text = "import runpy, sys; runpy.run_path(sys.argv[1], run_name='__main__')"
    assert outcome("-c", text, PROGRAM) == ("equal\n", "")
    assert outcome(PROGRAM) == ("equal\n", "")


def test_script_from_standard_input():
    assert outcome("-", text=PROGRAM.read_text()) == ("equal\n", "")


def test_jupyter_kernel():
    cells = [
        PROGRAM.read_text(),
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
        PROGRAM.read_text()
        .replace("assert run(2) == run(0)", "")
        .replace('print("equal")', "")
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


@pytest.mark.parametrize(
    "starts", [12, pytest.param(200, marks=pytest.mark.soak)], ids=str
)
def test_many_starts_among_jax_and_busy_threads(starts):
    run("faults/environments/starts_among_busy_threads", starts, deadline_s=280)


def test_unloadable_program_names_the_reason():
    run("faults/environments/program_that_cannot_be_loaded")


def test_deleted_directory_and_closed_streams(tmp_path):
    run(
        "faults/environments/directory_that_is_gone",
        (tmp_path / "gone").mkdir() or tmp_path / "gone",
    )
