"""Wheels contain their libraries and licenses, and CI makes one per platform."""

import importlib
import re
import subprocess
import sys
import tomllib

import pytest

from support import extras
from support.places import ROOT

SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text())
WHEELS = SETTINGS["tool"]["cibuildwheel"]
WORKFLOW = (ROOT / ".github/workflows/wheels.yml").read_text()


@pytest.fixture
def make_wheel(monkeypatch, tmp_path):
    """Return the module, with `share` as the system's folder of licenses."""
    monkeypatch.syspath_prepend(str(ROOT / ".ci"))
    module = importlib.import_module("make_wheel")
    monkeypatch.setattr(module, "SHARE", tmp_path / "share")
    return module


@pytest.fixture
def unpacked(tmp_path):
    """Return the content of a wheel as auditwheel leaves it."""
    info = tmp_path / "wheel" / "gristmill-1.dist-info"
    (info / "licenses").mkdir(parents=True)
    (info / "licenses" / "LICENSE").write_text("ours")
    (info / "METADATA").write_text("Name: x\nLicense-File: LICENSE\nVersion: 1\n")
    libraries = tmp_path / "wheel" / "gristmill.libs"
    libraries.mkdir()
    (libraries / "libzstd-37412b7a.so.1.5.4").touch()
    (libraries / "libjpeg-dad87949.so.62.3.0").touch()
    return tmp_path / "wheel"


def write(path, text):
    path.parent.mkdir(parents=True)
    path.write_text(text)


def test_licenses_of_libraries_are_added_to_the_wheel(make_wheel, unpacked):
    # The layouts of Debian and of RPM distributions.
    write(make_wheel.SHARE / "doc/libzstd1/copyright", "that of zstd")
    write(make_wheel.SHARE / "licenses/libjpeg-turbo/LICENSE.md", "that of turbo")
    (make_wheel.SHARE / "licenses/libjpeg-turbo/README.ijg").write_text("IJG's")
    make_wheel.add_licences(unpacked)
    (info,) = unpacked.glob("*.dist-info")
    texts = {path.name: path.read_text() for path in (info / "licenses").iterdir()}
    assert texts == {
        "LICENSE": "ours",
        "libjpeg.txt": "that of turbo\nIJG's",
        "libzstd.txt": "that of zstd",
    }
    assert (info / "METADATA").read_text() == (
        "Name: x\nLicense-File: LICENSE\nLicense-File: libjpeg.txt\n"
        "License-File: libzstd.txt\nVersion: 1\n"
    )


def test_library_without_a_license_is_refused(make_wheel, unpacked):
    write(make_wheel.SHARE / "licenses/libjpeg-turbo/LICENSE.md", "that of turbo")
    with pytest.raises(SystemExit, match="libzstd has no licence in"):
        make_wheel.add_licences(unpacked)


def test_unexpected_library_is_refused(make_wheel):
    with pytest.raises(SystemExit, match="Whose licence is that of libgomp"):
        make_wheel.licences_of("libgomp")


def test_linked_libraries_have_licenses_and_are_checked(make_wheel):
    linked = re.findall(
        r"gristmill_add_codec\((\w+) \w", (ROOT / "csrc/CMakeLists.txt").read_text()
    )
    # Wheels use the system's zlib, which each system that manylinux allows has.
    linked.remove("z")
    assert len(linked) == 4
    assert {f"lib{name}" for name in linked} <= make_wheel.LICENCES.keys()
    looked_for = re.search(
        r"LIBRARIES = \((.*?)\)", (ROOT / ".ci/smoke.py").read_text(), re.DOTALL
    )
    assert re.findall(r"\w+", looked_for[1]) == sorted(linked)


@pytest.mark.multiprocess
def test_smoke_test_rejects_the_systems_libraries():
    # The module under test is built for this machine and bundles no libraries.
    done = subprocess.run(
        [sys.executable, str(ROOT / ".ci/smoke.py")], capture_output=True, text=True
    )
    assert done.returncode == 1
    assert re.search(r"lib\w+\.so\S* is not the wheel's$", done.stderr.strip())


def test_every_supported_python_and_machine_has_a_wheel():
    prefix = "Programming Language :: Python :: "
    pythons = [c for c in extras.PROJECT["classifiers"] if c.startswith(prefix)]
    names = ["cp" + c.removeprefix(prefix).replace(".", "") + "-*" for c in pythons]
    assert WHEELS["build"].split() == names
    for machine in ("x86_64", "aarch64"):
        assert WHEELS["linux"][f"manylinux-{machine}-image"] == "manylinux_2_28"
    wheels = re.search(r"\n  wheels:\n(.*?)\n\n", WORKFLOW, re.DOTALL)[1]
    assert "runner: [ubuntu-24.04, ubuntu-24.04-arm]" in wheels


def test_each_wheel_is_repaired_and_tried_like_make_wheel():
    command = ["make", "--dry-run", "--always-make", "wheel", "VENV=/v", "BUILD_DIR=/b"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    local = re.findall(r"\.ci/make_wheel\.py (\w+)", done.stdout)
    assert local == ["build", "repair", "try"]
    published = [WHEELS["repair-wheel-command"], WHEELS["test-command"]]
    assert [re.findall(r"/\.ci/make_wheel\.py (\w+)", text) for text in published] == [
        ["repair"],
        ["try"],
    ]


def test_publishing_needs_tried_wheels():
    assert "\n    needs: [sdist, wheels, alone]\n" in WORKFLOW
