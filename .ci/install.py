"""Install the package with one extra and show progress, since it compiles for minutes.

python .ci/install.py demo [options of pip install]
"""

import re
import signal
import subprocess
import sys

NINJA = re.compile(r"\s*\[(\d+)/(\d+)\] ")
TENTHS = 10
# Patterns of pip's output, and the text to print for each.
PHASES = [
    (re.compile(r"\s*Installing build dependencies: started"), "fetching build tools"),
    (re.compile(r"\s*\*\*\* Configuring CMake"), "configuring"),
    (re.compile(r"(?:Downloading|Using cached) ([\w.]+-[\w.]+?)-"), "fetched {}"),
    (re.compile(r"Installing collected packages: (.*)"), "installing {}"),
    (re.compile(r"Successfully (installed|built)"), "{}"),
]


class Progress:
    """Reduces the verbose output of pip to a few lines."""

    def __init__(self):
        self._tenth = 0

    def said_of(self, line):
        """Return the text to print for a line, or None."""
        if step := NINJA.match(line):
            done, total = map(int, step.groups())
            tenth = TENTHS * done // total
            if tenth == self._tenth:
                return None
            self._tenth = tenth
            return f"compiled {done} of {total}"
        for pattern, text in PHASES:
            if found := pattern.match(line):
                return text.format(*found.groups())
        return None


def main(extra, *options):
    print(f"Building Gristmill and installing it with [{extra}]:", flush=True)
    return pip("install", *options, f".[{extra}]")


def pip(verb, *arguments):
    """Run pip and print its progress, or all of its output if it fails."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", verb]
    command += ["--verbose", *arguments]
    log, progress = [], Progress()
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as running:
        try:
            for line in running.stdout:
                log.append(line)
                if said := progress.said_of(line):
                    print(f"  {said}", flush=True)
        except KeyboardInterrupt:
            running.terminate()
            return 128 + signal.SIGINT
    if running.returncode:
        sys.stderr.writelines(log)
    return running.returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
