"""A worker starts no workers, so importing a module that iterates ends."""

import importlib
import os
import re
import subprocess
import sys

import pytest

import gristmill as g
from faults.scripts import DEADLINE_S, PROGRAMS, environment

pytestmark = pytest.mark.multiprocess

FOLDER = PROGRAMS / "faults" / "nested_workers"
LINES = (FOLDER / "train.py").read_text().splitlines()
MODULE = "programs.faults.nested_workers.iterates"
REFUSAL = "iterates a loader with workers"


def imported(way, imports, then="pass"):
    """Import the module in a new process; return the process and the import count."""
    paths = os.pathsep.join([str(FOLDER), environment()["PYTHONPATH"]])
    done = subprocess.run(
        [sys.executable, "-c", f"import train; {then}"],
        env={**environment(), "PYTHONPATH": paths, "WAY": way, "IMPORTS": str(imports)},
        capture_output=True, text=True, timeout=DEADLINE_S, start_new_session=True,
    )  # fmt: skip
    return done, len(imports.read_text().splitlines())


@pytest.mark.parametrize(
    "way", ["DataLoader", "load", "mp_prefetch", "spawn", "forkserver", "launcher"]
)
def test_module_iterating_on_import_is_refused(tmp_path, way):
    done, imports = imported(way, tmp_path / "imports")
    # Once by the program, and once by the process of its first worker.
    assert (done.returncode, imports) == (1, 2), done.stderr
    line = LINES.index("    print(list(loader()))") + 1
    assert f"train ({FOLDER}/train.py, line {line}) {REFUSAL} when it is" in done.stderr
    assert 'under `if __name__ == "__main__":`' in done.stderr


def test_module_iterating_on_import_runs_with_forks(tmp_path):
    done, imports = imported("fork", tmp_path / "imports")
    assert (done.stdout, imports) == ("[0, 1, 2, 3]\n", 1), done.stderr


def test_process_started_by_an_import_is_refused(tmp_path):
    done, imports = imported("subprocess", tmp_path / "imports")
    # The program, its script and the script's import; then the same in a worker.
    assert (done.returncode, imports) == (1, 6), done.stderr
    line = next(i for i, text in enumerate(LINES, 1) if "train.Numbers()" in text)
    assert f"__main__ ({FOLDER}/train.py, line {line}) {REFUSAL}" in done.stderr


def test_thread_started_by_an_import_is_refused(tmp_path):
    done, imports = imported("thread", tmp_path / "imports", "train.thread.join()")
    assert done.stdout == "[0, 1, 2, 3]\n", done.stderr
    # By the program, the zygote, and the worker, because the zygote has a thread.
    assert imports <= 3


class Nested:
    """Each item is the output of a loader with a worker, made by `__getitem__`."""

    def __init__(self, iterate):
        self.iterate = iterate

    def __len__(self):
        return 1

    def __getitem__(self, index):
        return self.iterate()


def iterate_load():
    return list(g.load(range(2), num_epochs=1, worker_count=1))


def iterate_torch():
    from gristmill.torch import DataLoader

    # Other tests may have initialized JAX in this process.
    how = {"multiprocessing_context": "launcher"}
    return list(DataLoader(range(2), None, num_workers=1, **how))


def iterate_in_subprocess():
    text = (
        "import gristmill as g; print(*g.load(range(2), num_epochs=1, worker_count=1))"
    )
    command = [sys.executable, "-c", text]
    out = subprocess.check_output(command, env=environment(), text=True)
    return [int(word) for word in out.split()]


def import_iterates():
    importlib.import_module(MODULE)


@pytest.mark.claim(
    "A step that iterates a loader with workers inside a worker gets AssertionError"
)
@pytest.mark.parametrize("iterate", [iterate_load, iterate_torch])
def test_loader_inside_a_step_has_no_workers(iterate):
    assert [*g.load(Nested(iterate), num_epochs=1)] == [[0, 1]]
    with pytest.raises(RuntimeError, match=rf"^{__name__} \(\S+, line \d+\) {REFUSAL}"):
        list(g.load(Nested(iterate), num_epochs=1, worker_count=1))


@pytest.mark.parametrize("context", ["fork", "launcher"])
@pytest.mark.parametrize("iterate", [iterate_load, iterate_torch])
def test_loader_inside_a_torch_dataset_has_no_workers(iterate, context):
    from gristmill.torch import DataLoader

    loader = DataLoader(
        Nested(iterate), None, num_workers=1, multiprocessing_context=context
    )
    with pytest.raises(RuntimeError, match=rf"{__name__} \(\S+, line \d+\) {REFUSAL}"):
        list(loader)


def test_module_imported_by_a_step_is_named():
    where = rf"^{re.escape(MODULE)} \(\S+iterates\.py, line 4\) {REFUSAL} when it is"
    with pytest.raises(RuntimeError, match=where):
        list(g.load(Nested(import_iterates), num_epochs=1, worker_count=1))


def test_program_started_by_a_step_may_have_workers():
    assert [*g.load(Nested(iterate_in_subprocess), num_epochs=1, worker_count=1)] == [
        [0, 1]
    ]
