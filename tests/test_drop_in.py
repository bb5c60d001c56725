"""python -m gristmill.drop_in runs Grain scripts on Gristmill."""

import os
import subprocess
import sys

import pytest

SCRIPT = """
import sys
import grain
import grain.python as pygrain
from grain import samplers
from grain.python import experimental
import grain.python.experimental
import grain.transforms as transforms

def main(argv):
    assert grain.__name__ == "gristmill"
    assert pygrain.MapTransform is transforms.Map is grain.transforms.Map
    assert samplers.IndexSampler is pygrain.IndexSampler
    assert experimental.index_shuffle(0, 0, 0, 4) == 0
    assert grain.config.py_debug_mode is ("--grain_py_debug_mode" in sys.argv)
    print("ran", __name__, *argv[1:])

if __name__ == "__main__":
    {run}
"""


def run(arguments, cwd):
    return subprocess.run(
        [sys.executable, "-m", "gristmill.drop_in", *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "folder" / "train.py"
    path.parent.mkdir()
    (path.parent / "helper.py").write_text("import grain\nVALUE = grain.RECORD\n")
    path.write_text("import helper\n" + SCRIPT.format(run="main(sys.argv)"))
    return path


@pytest.mark.claim("gristmill.drop_in")
def test_runs_a_script_as_the_main_program(script, tmp_path):
    done = run(["folder/train.py", "a", "--b"], tmp_path)
    assert (done.returncode, done.stdout) == (0, "ran __main__ a --b\n"), done.stderr


def test_runs_a_module_as_the_main_program(script):
    done = run(["-m", "train", "a"], script.parent)
    assert (done.returncode, done.stdout) == (0, "ran __main__ a\n"), done.stderr


def test_absl_knows_grains_flags(script, tmp_path):
    pytest.importorskip("absl")
    script.write_text(SCRIPT.format(run="from absl import app; app.run(main)"))
    done = run([str(script), "--grain_py_debug_mode", "a"], tmp_path)
    assert (done.returncode, done.stdout) == (0, "ran __main__ a\n"), done.stderr


def test_says_how_it_is_used(tmp_path):
    assert "script.py [arguments...]" in run(["--help"], tmp_path).stdout
    assert run([], tmp_path).returncode == 2


def test_errors_of_the_script_are_its_own(script, tmp_path):
    script.write_text("import grain\nraise KeyError('mine')\n")
    done = run([str(script)], tmp_path)
    assert done.returncode == 1
    assert "KeyError: 'mine'" in done.stderr


MIXED = """
import grain, gristmill.drop_in
try:
    gristmill.drop_in.install()
except RuntimeError as error:
    print(str(error)[:50])
"""


def test_refuses_to_mix_with_the_real_grain(tmp_path):
    pytest.importorskip("grain")
    done = subprocess.run(
        [sys.executable, "-c", MIXED], capture_output=True, text=True, check=True
    )
    assert done.stdout == "gristmill.drop_in: the real grain is imported alre\n"


WORKER = """
import sys
import gristmill.drop_in
gristmill.drop_in.install_if_asked()
print("grain" in sys.modules)
"""


@pytest.mark.parametrize(("asked", "aliased"), [("1", "True"), ("", "False")])
def test_workers_do_as_their_parent(monkeypatch, asked, aliased):
    monkeypatch.setenv("GRISTMILL_DROP_IN", asked)
    done = subprocess.run(
        [sys.executable, "-c", WORKER], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == aliased


POOLS = """
import grain
import numpy as np

def elements(workers):
    return sorted(map(int, grain.DataLoader(
        data_source=np.arange(20),
        sampler=grain.samplers.IndexSampler(20, num_epochs=1, seed=0),
        worker_count=workers,
    )))

def prefetched(workers):
    options = grain.multiprocessing.MultiprocessingOptions(num_workers=workers)
    dataset = grain.MapDataset.source(range(20)).map(lambda number: number + 1)
    return sorted(dataset.to_iter_dataset().mp_prefetch(options))

for workers in (2, 2):
    assert elements(workers) == list(range(20))
for workers in (2, 3, 2):
    assert prefetched(workers) == list(range(1, 21))
print("all came")
"""


@pytest.mark.multiprocess
@pytest.mark.parametrize("installed", [True, False])
def test_one_pool_of_workers_after_another_whether_grain_is_installed(
    installed, script, tmp_path, monkeypatch
):
    if not installed:
        (tmp_path / "hidden").mkdir()
        (tmp_path / "hidden" / "grain.py").write_text("raise ImportError('none')\n")
        places = [str(tmp_path / "hidden"), os.environ.get("PYTHONPATH", "")]
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join(places))
    script.write_text(POOLS)
    done = run([str(script)], tmp_path)
    assert (done.returncode, done.stdout) == (0, "all came\n"), done.stderr
