"""Build wheels that need only glibc and zlib of the system, and test them.

    python .ci/make_wheel.py build FOLDER
    python .ci/make_wheel.py repair WHEEL FOLDER
    python .ci/make_wheel.py try WHEEL

`repair` adds libraries and their licences to the wheel, and renames it after the oldest
glibc that it supports.  That is the glibc of the system that built it, so
.github/workflows/wheels.yml builds on an old system.  `try` runs a program and the
quick tests with only the wheel installed.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile

from extra import requirements
from install import pip

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Maps each library to the packages that may contain its licence: of Debian, then RPMs.
LICENCES = {
    "libbrotlicommon": ("libbrotli1", "brotli", "libbrotli"),
    "libbrotlidec": ("libbrotli1", "brotli", "libbrotli"),
    "libjpeg": ("libjpeg62-turbo", "libjpeg-turbo"),
    "libsnappy": ("libsnappy1v5", "snappy"),
    "libzstd": ("libzstd1", "libzstd", "zstd"),
}
SHARE = pathlib.Path("/usr/share")


def build(folder):
    """Build a wheel the way users do, and show the progress."""
    done = pip("wheel", "--no-deps", "--wheel-dir", folder, str(ROOT))
    if done:
        sys.exit(done)
    print(*pathlib.Path(folder).glob("*.whl"))


def repair(wheel, folder):
    """Add the libraries to a wheel, and their licences next to ours."""
    run("auditwheel", "repair", "--wheel-dir", folder, wheel)
    (repaired,) = pathlib.Path(folder).glob("*.whl")
    with tempfile.TemporaryDirectory() as scratch:
        run("wheel", "unpack", "--dest", scratch, repaired)
        (unpacked,) = pathlib.Path(scratch).iterdir()
        add_licences(unpacked)
        repaired.unlink()
        run("wheel", "pack", "--dest-dir", folder, unpacked)
    print(f"{repaired}: {repaired.stat().st_size / 2**20:.1f} MiB")


def add_licences(unpacked):
    """Add the licences of the libraries that auditwheel has added to a wheel."""
    (libraries,) = unpacked.glob("*.libs")
    (info,) = unpacked.glob("*.dist-info")
    added = []
    for library in sorted(libraries.iterdir()):
        name = re.split(r"[-.]", library.name)[0]
        text = "\n".join(path.read_text() for path in licences_of(name))
        (info / "licenses" / f"{name}.txt").write_text(text)
        added.append(f"License-File: {name}.txt\n")
    metadata = info / "METADATA"
    own = "License-File: LICENSE\n"
    told = metadata.read_text()
    assert own in told
    metadata.write_text(told.replace(own, own + "".join(added), 1))


def licences_of(name):
    """Return the files of the system with a library's licence."""
    if name not in LICENCES:
        sys.exit(f"Whose licence is that of {name}? Say it in LICENCES of {__file__}.")
    found = []
    for package in LICENCES[name]:
        found += (SHARE / "doc" / package).glob("copyright")
        found += sorted((SHARE / "licenses" / package).glob("*"))
    if not found:
        sys.exit(f"{name} has no licence in {SHARE}/doc or {SHARE}/licenses.")
    return found


def try_out(wheel):
    """Run a program and the quick tests in an environment with only the wheel."""
    wheel = pathlib.Path(wheel).resolve()
    with tempfile.TemporaryDirectory() as scratch:
        bin_ = pathlib.Path(scratch, "venv", "bin")
        run(sys.executable, "-m", "venv", bin_.parent)
        # With this PATH, pip finds no compiler.
        alone = {"PATH": str(bin_), "HOME": scratch, "LANG": "C.UTF-8"}
        install = [bin_ / "pip", "--disable-pip-version-check", "install", "--quiet"]
        install += ["--only-binary", ":all:"]
        run(*install, wheel, env={**os.environ, **alone})
        for name in ("docs", "tests", "pyproject.toml", ".ci/smoke.py"):
            copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
            copy(ROOT / name, pathlib.Path(scratch, pathlib.Path(name).name))
        run(bin_ / "python", "smoke.py", env=alone, cwd=scratch)
        # The extra writes the record files that test the libraries.  It has no wheels
        # for free-threaded builds.
        extra = "" if sysconfig.get_config_var("Py_GIL_DISABLED") else "[convert]"
        run(*install, f"{wheel}{extra}", *requirements("dev"))
        # tests/house needs the whole checkout.
        quick = ["-q", "-r", "fE", "-m", "not multiprocess and not slow and not soak"]
        quick += ["--ignore=tests/house", "tests"]
        run(bin_ / "python", "-m", "pytest", *quick, env=alone, cwd=scratch)


def run(*command, **options):
    done = subprocess.run([*map(str, command)], **options)
    if done.returncode:
        sys.exit(done.returncode)


if __name__ == "__main__":
    {"build": build, "repair": repair, "try": try_out}[sys.argv[1]](*sys.argv[2:])
