"""Run Clang's thread-safety analysis over the core; any finding is an error.

python .ci/check_threads.py path/to/clang-tidy

The analysis only covers annotated code, so this script checks two rules first.  The
core locks with core/base/mutex.hpp only.  Each member of a class with a Mutex is
guarded by a Mutex, has a type that needs no lock, or has a comment "unguarded:" that
gives the reason.
"""

import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys

CORE = pathlib.Path("csrc/core")
ALLOWED = {CORE / "base/mutex.hpp"}
UNANNOTATED = re.compile(
    r"std::(mutex|shared_mutex|recursive_mutex|condition_variable\w*|lock_guard"
    r"|unique_lock|scoped_lock)\b"
)
MUTEX = re.compile(r"^ +(?:mutable |static )*Mutex \w+;", re.MULTILINE)
BODY = re.compile(r"^( *)(?:class|struct) .*?^\1\};", re.MULTILINE | re.DOTALL)
# A declaration of a member, up to its semicolon; functions have parentheses.
MEMBER = re.compile(r"^ +[\w:<>,*& ]+?[ >*&](\w+)(?: = [^;()]*|\{[^;]*\})?;.*$")
NO_LOCK = re.compile(
    r"^ *(using|friend|return|class|struct|static constexpr|static const |const )"
    r"|std::atomic<|\bMutex\b|\bCondition\b|\* const |& \w+;|GUARDED_BY|unguarded"
)
# Such a comment on a separate line covers the lines after it, up to an empty line.
COVERED = re.compile(r"^ +// unguarded: .*\n(?: +\S.*\n)*", re.MULTILINE)


def unguarded_members(text: str) -> list[str]:
    """Return the members of classes with a Mutex that break the second rule."""
    found = []
    for body in BODY.finditer(text):
        inner = body.group()[body.group().index("\n") :]
        members = BODY.sub("", inner)
        if MUTEX.search(members):
            members = COVERED.sub("", members)
            found += [
                line.strip()
                for line in members.splitlines()
                if MEMBER.match(line) and not NO_LOCK.search(line)
            ]
    return found


def broken_rules(path: pathlib.Path) -> list[str]:
    """Return a line for each place in the file that breaks a rule."""
    text = path.read_text()
    wrong = [f"{path}: {line}: guarded by nothing" for line in unguarded_members(text)]
    if path not in ALLOWED and (used := UNANNOTATED.search(text)):
        wrong.append(f"{path}: {used.group()}: use core/base/mutex.hpp")
    return wrong


def analyse(tidy: str, path: pathlib.Path) -> tuple[bool, str]:
    """Return whether Clang finds no error, and its output."""
    done = subprocess.run(
        [
            tidy,
            "--quiet",
            "--allow-no-checks",
            "--checks=-*,clang-diagnostic-thread-safety*",
            "--warnings-as-errors=*",
            str(path),
            "--",
            *("-std=c++20", "-Icsrc", "-Wthread-safety"),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode == 0, done.stdout + done.stderr


def main(tidy: str) -> int:
    """Print the findings and return the exit status."""
    wrong = [
        line for path in sorted(CORE.rglob("*.?pp")) for line in broken_rules(path)
    ]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        sources = sorted(CORE.rglob("*.cpp"))
        for fine, said in pool.map(lambda path: analyse(tidy, path), sources):
            if not fine:
                wrong.append(said)
    print("\n".join(wrong) or f"{len(sources)} files: every lock is held.")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
