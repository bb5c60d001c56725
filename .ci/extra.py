"""Print the requirements of one extra, to install them without the package.

python .ci/extra.py lint
"""

import pathlib
import sys
import tomllib

ROOT = pathlib.Path(__file__).resolve().parent.parent


def requirements(extra):
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    return settings["project"]["optional-dependencies"][extra]


if __name__ == "__main__":
    print(*requirements(sys.argv[1]), sep="\n")
