"""Tests that `python -m gristmill.drop_in` runs Grain scripts on Gristmill."""

import os
import subprocess
import sys

import pytest

from faults import scripts
from faults.scripts import PROGRAMS


def run(arguments, cwd):
    return subprocess.run(
        [sys.executable, "-m", "gristmill.drop_in", *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
    )


def test_script_runs_as_main_program():
    done = run(["drop_in/train.py", "a", "--b"], PROGRAMS)
    assert (done.returncode, done.stdout) == (0, "ran __main__ a --b\n"), done.stderr


def test_module_runs_as_main_program():
    done = run(["-m", "train", "a"], PROGRAMS / "drop_in")
    assert (done.returncode, done.stdout) == (0, "ran __main__ a\n"), done.stderr


def test_absl_accepts_grain_flags(tmp_path):
    pytest.importorskip("absl")
    script = PROGRAMS / "drop_in" / "train_by_absl.py"
    done = run([str(script), "--grain_py_debug_mode", "a"], tmp_path)
    assert (done.returncode, done.stdout) == (0, "ran __main__ a\n"), done.stderr


def test_help_shows_usage(tmp_path):
    assert "script.py [arguments...]" in run(["--help"], tmp_path).stdout
    assert run([], tmp_path).returncode == 2


def test_script_error_is_shown_unchanged(tmp_path):
    script = tmp_path / "train.py"
    script.write_text("import grain\nraise KeyError('mine')\n")
    done = run([str(script)], tmp_path)
    assert done.returncode == 1
    assert "KeyError: 'mine'" in done.stderr


def test_imported_real_grain_is_refused(tmp_path):
    pytest.importorskip("grain")
    out = scripts.run("drop_in/mixed_with_grain")
    assert out == "True\n"


@pytest.mark.parametrize(("asked", "aliased"), [("1", "True"), ("", "False")])
def test_workers_use_drop_in_like_their_parent(monkeypatch, asked, aliased):
    monkeypatch.setenv("GRISTMILL_DROP_IN", asked)
    assert scripts.run("drop_in/worker").strip() == aliased


@pytest.mark.multiprocess
def test_worker_process_name_matches_grain(tmp_path):
    done = run([str(PROGRAMS / "drop_in" / "worker_name.py")], tmp_path)
    # Output of the program with Grain 0.2.18.
    iterator = "ProcessPrefetchDatasetIterator(buffer_size=5)"
    assert done.stdout == f"grain-process-prefetch-{iterator}\n", done.stderr


@pytest.mark.multiprocess
@pytest.mark.parametrize("installed", [True, False])
def test_two_pools_work_with_and_without_grain_installed(
    installed, tmp_path, monkeypatch
):
    if not installed:
        (tmp_path / "hidden").mkdir()
        (tmp_path / "hidden" / "grain.py").write_text("raise ImportError('none')\n")
        places = [str(tmp_path / "hidden"), os.environ.get("PYTHONPATH", "")]
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join(places))
    done = run([str(PROGRAMS / "drop_in" / "pools.py")], tmp_path)
    assert (done.returncode, done.stdout) == (0, "all came\n"), done.stderr
