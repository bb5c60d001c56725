"""The examples run, with settings small enough for a test."""

import pathlib
import re
import subprocess
import sys

import pytest

EXAMPLES = pathlib.Path(__file__).resolve().parent.parent / "examples"


def run(name, *arguments):
    command = [sys.executable, str(EXAMPLES / name), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


@pytest.mark.multiprocess
def test_text_pipeline_says_how_fast_it_is_and_how_long_training_waits():
    printed = run(
        "text_pipeline.py",
        *("--documents", 1200, "--batch-size", 4, "--batches", 5),
        *("--workers", 2, 16, "--steps", 4, "--step-seconds", 0.01),
    )
    lines = printed.splitlines()
    assert lines[0] == "1200 documents through gristmill"
    assert [line.split()[0] for line in lines if "first batch" in line] == [
        "0",
        "2",
        "16",
    ]
    rates = re.findall(r"([\d,]+) rows/s, ([\d,]+) tokens/s", printed)
    assert len(rates) == 3
    for rows, tokens in rates:
        # Rows are nearly full: up to 128 tokens each.
        per_row = int(tokens.replace(",", "")) / int(rows.replace(",", ""))
        assert 100 < per_row <= 129
    waits = re.findall(r"waits +([\d.]+)% of the time: (.*)", printed)
    assert [name for _, name in waits] == 3 * [
        "as it is",
        "a thread prefetches",
        "and starts while the model is restored",
    ]
    assert all(0 <= float(share) <= 100 for share, _ in waits)


def test_text_pipeline_gives_the_batches_that_grain_gives(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLES)
    import itertools

    import numpy as np
    import text_pipeline

    text = text_pipeline.write_text(tmp_path, 400)
    ours, theirs = (
        itertools.islice(
            text_pipeline.pipeline(text_pipeline.import_library(name), text, 4, 0), 20
        )
        for name in ("gristmill", "grain")
    )
    for our, their in zip(ours, theirs, strict=True):
        assert our.keys() == their.keys()
        for key in their:
            assert our[key].dtype == their[key].dtype
            np.testing.assert_array_equal(our[key], their[key])
