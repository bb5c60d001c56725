"""The example of the README trains, stops and goes on."""

import pathlib
import subprocess
import sys

import pytest

EXAMPLE = pathlib.Path(__file__).resolve().parent.parent / "examples/train_digits.py"


@pytest.mark.multiprocess
def test_train_digits_reaches_its_goal_and_resumes(tmp_path):
    command = [sys.executable, str(EXAMPLE), "--data", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    assert "The very next batch is the same" in done.stdout
