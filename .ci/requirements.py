"""Install the requirements of one extra and of the build, without the package.

python .ci/requirements.py test

Most installed modules are never imported, so pip compiles none of them to bytecode.
Importing the largest packages here compiles the modules that they need.  Otherwise,
each of several processes that import them at the same time would compile them.
"""

import pathlib
import subprocess
import sys
import tomllib

LARGEST = ("jax", "lightning", "tensorflow", "transformers.trainer")
IMPORT_ALL = """
import contextlib, importlib, sys
for name in sys.argv[1:]:
    with contextlib.suppress(ModuleNotFoundError):  # On this Python there is none.
        importlib.import_module(name)
"""


def main(extra):
    settings = tomllib.loads(pathlib.Path("pyproject.toml").read_text())
    wanted = settings["project"]["optional-dependencies"][extra]
    wanted = [*wanted, *settings["build-system"]["requires"]]
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install"]
    pip += ["--quiet", "--no-compile"]
    # The pip that comes with Python is old, and takes 1.5 times as long.
    subprocess.run([*pip, "--upgrade", "pip"], check=True)
    subprocess.run([*pip, *wanted], check=True)
    if alone := settings["dependency-groups"].get(f"{extra}-no-deps"):
        subprocess.run([*pip, "--no-deps", *alone], check=True)
    imports = [sys.executable, "-c", IMPORT_ALL, *LARGEST]
    # Capture the output: the packages warn about hardware that this machine lacks.
    done = subprocess.run(imports, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"Importing {', '.join(LARGEST)} failed:\n{done.stderr}")


if __name__ == "__main__":
    main(sys.argv[1])
