"""The README's example trains, stops and resumes, and `make demo` runs it."""

import importlib.util
import re
import subprocess
import sys

import PIL.Image
import pytest

from support.places import ROOT

EXAMPLE = ROOT / "examples/train_digits.py"


@pytest.mark.multiprocess
def test_train_digits_learns_resumes_and_draws_mistakes(tmp_path):
    picture = tmp_path / "pictures" / "digits.png"
    command = [sys.executable, str(EXAMPLE), "--data", str(tmp_path)]
    command += ["--picture", str(picture)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    assert "The very next batch is the same" in done.stdout
    table = re.findall(r"^ {4}(\d) +([\d.]+)%  (\u2588*) *(.*)$", done.stdout, re.M)
    assert [digit for digit, *_ in table] == list("0123456789")
    assert all(len(bar) == round(float(right) / 5) for _, right, bar, _ in table), (
        done.stdout
    )
    mistakes = sum(int(n) for *_, wrong in table for n in re.findall(r"\((\d+)", wrong))
    assert f"The {mistakes} mistaken ones are drawn in {picture}." in done.stdout
    assert mistakes < 18  # 5 % of 360.
    with PIL.Image.open(picture) as image:
        assert image.format == "PNG"
        assert (
            len(image.convert("L").getcolors()) > 10
        )  # Digits have many shades of gray.


PIP_SAYS = """\
Processing /home/me/gristmill
  Installing build dependencies: started
  Running command pip subprocess to install build dependencies
    Downloading cython-3.3.1-cp311-cp311-manylinux_2_28_x86_64.whl (3.5 MB)
  *** Configuring CMake...
  -- The CXX compiler identification is GNU 12.2.0
  [1/30] Building CXX object a.cpp.o
  [2/30] Building CXX object b.cpp.o
  [3/30] Building CXX object c.cpp.o
  [29/30] Building CXX object d.cpp.o
  [30/30] Linking CXX shared module _core.so
Downloading jax-0.10.2-py3-none-any.whl (2.0 MB)
Using cached scikit_learn-1.8.0-cp311-cp311-manylinux_2_28_x86_64.whl (8.9 MB)
Installing collected packages: jax, gristmill
Successfully installed gristmill-0.1.0 jax-0.10.2
"""


def test_installer_reports_progress():
    spec = importlib.util.spec_from_file_location("install", ROOT / ".ci/install.py")
    install = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(install)
    progress = install.Progress()
    said = [progress.said_of(line) for line in PIP_SAYS.splitlines()]
    assert [text for text in said if text] == [
        "fetching build tools",
        "configuring",
        "compiled 3 of 30",
        "compiled 29 of 30",
        "compiled 30 of 30",
        "fetched jax-0.10.2",
        "fetched scikit_learn-1.8.0",
        "installing jax, gristmill",
        "installed",
    ]


@pytest.mark.parametrize("target", ["demo", "test"])
def test_make_installs_with_progress(target):
    command = ["make", "--dry-run", "--always-make", target]
    command += ["VENV=/nowhere", "BUILD_DIR=build"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert f"/nowhere/bin/python .ci/install.py {target}" in done.stdout
    if target == "demo":
        assert "train_digits.py --picture build/digits.png\n" in done.stdout
