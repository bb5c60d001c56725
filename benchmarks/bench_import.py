"""Measures the time to import the library.

Prints ms in a fresh interpreter, NumPy's own import included; lower is better.
Gristmill must load none of jax, torch, orbax and pyarrow.

    python benchmarks/bench_import.py
"""

import functools
import json
import subprocess
import sys

from harness import AtMost, Measurement, Question, Settings, main

HEAVY = ("jax", "torch", "orbax", "pyarrow")
CODE = """
import json, sys, time
start = time.perf_counter()
import {name}
print(json.dumps([time.perf_counter() - start, sorted(sys.modules)]))
"""


def _measure(name: str, settings: Settings) -> Measurement:
    del settings
    # The measuring process has NumPy loaded, so one more interpreter is started;
    # the first of two writes the byte code and warms the page cache.
    command = [sys.executable, "-c", CODE.format(name=name)]
    for _ in range(2):
        output = subprocess.run(command, check=True, capture_output=True).stdout
    seconds, modules = json.loads(output)
    loaded = [heavy for heavy in HEAVY if heavy in modules]
    assert name != "gristmill" or not loaded, f"import gristmill loads {loaded}"
    return Measurement(seconds * 1e3)


QUESTION = Question(
    name="import",
    text="import time in a fresh interpreter",
    unit="ms",
    contestants={
        name: functools.partial(_measure, name)
        for name in ("gristmill", "grain", "torch", "spdl.pipeline", "numpy")
    },
    targets=(AtMost(150),),
)

if __name__ == "__main__":
    main(QUESTION)
