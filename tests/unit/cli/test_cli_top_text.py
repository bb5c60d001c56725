"""The text of `gristmill top` fits the terminal and has color if that can be shown."""

import os
import sys

import pytest

import gristmill as grain
from gristmill._base.publication import read_facts
from gristmill._cli.terminal import count_columns, shorten, shows_color
from gristmill._cli.top_text import UNLIMITED_COLUMNS, format_activity

BYTES = grain.MapDataset.source([b"a", b"b"])
LENGTHS = {"code": [7, 8]}


def activity_of(**fields):
    """Return the activity of a process without loaders, with other values of fields."""
    activity = {"pid": 1, "stopped": False, "command": "train", "cpu": None}
    activity |= {"pss_bytes": None, "loaders": [], "sources": [], "auto_workers": []}
    return activity | fields


def worker_of(number, **fields):
    """Return the activity of a worker that computes, with other values of fields."""
    unit = {"seconds": 0.125, "stream": 1, "first": 1216, "count": 8, "record": None}
    worker = {"worker": number, "pid": 26836 + number, "state": "computing"}
    worker |= {"unit": unit, "cpu": 0.29, "pss_bytes": 25_690_112, "restarts": 0}
    return worker | {"outputs_per_s": 6.456} | fields


def loader_of(*workers, **fields):
    loader = {"face": "grain", "waiting": 0.86, "samples": 50, "ready": 0}
    loader |= {"delivered_per_s": 12.9, "computed_per_s": 13.1, "delivered": 76}
    loader |= {"memory_bytes": 3 << 20, "memory_limit": 5 << 30, "workers": workers}
    return loader | fields


WORKERS = (
    worker_of(0),
    worker_of(1, state="waiting for work", unit=None),
)


def test_80_columns_have_the_limit_and_the_most_useful_columns():
    activity = activity_of(loaders=[loader_of(*WORKERS)])
    assert format_activity(activity, 79).splitlines()[3:] == [
        "loader 0 (grain): limit data, the consumer waits in 86% of 50 looks",
        "  12.9 outputs/s taken, 13.1/s computed, 0 ready, 76 outputs taken so far,",
        "  3.0 MiB of 5.0 GiB for outputs",
        "  worker    pid     for  CPU    memory  outputs/s  does",
        "  0       26836  125 ms  29%  24.5 MiB       6.46  computing 1,216 to 1,223",
        "  1       26837       -  29%  24.5 MiB       6.46  waiting for work",
    ]


def test_120_columns_have_all_columns():
    unit = WORKERS[0]["unit"] | {"record": 7}
    loader = loader_of(worker_of(0, unit=unit), WORKERS[1], waiting=0.02)
    text = format_activity(activity_of(loaders=[loader]), 119)
    assert text == format_activity(activity_of(loaders=[loader]), UNLIMITED_COLUMNS)
    assert text.splitlines()[3:] == [
        "loader 0 (grain): limit consumer, the consumer waits in 2% of 50 looks",
        "  12.9 outputs/s taken, 13.1/s computed, 0 ready, 76 outputs taken so far,"
        " 3.0 MiB of 5.0 GiB for outputs",
        "  worker    pid     for  CPU    memory  outputs/s  restarts  does",
        "  0       26836  125 ms  29%  24.5 MiB       6.46         0"
        "  computing 1,216 to 1,223 of stream 1, at record 7",
        "  1       26837       -  29%  24.5 MiB       6.46         0  waiting for work",
    ]


def test_restarts_are_shown_before_other_columns():
    loader = loader_of(worker_of(0, restarts=1))
    lines = format_activity(activity_of(loaders=[loader]), 40).splitlines()
    assert lines[-2].split() == ["worker", "outputs/s", "restarts", "does"]


@pytest.mark.parametrize("columns", [1, 2, 20, 40, 79, 119])
def test_no_line_is_wider_than_the_terminal(columns):
    counts = {"elements": 12345678, "tokens": 12345678901, "epochs": 1.5}
    activity = activity_of(
        command="python train.py " * 20,
        loaders=[loader_of(*WORKERS), loader_of(worker_of(0), face="torch")],
        sources=[
            {"a source " * 9: counts, "\N{CJK UNIFIED IDEOGRAPH-8CC7}" * 60: counts}
        ],
        auto_workers=[{"workers": 2, "text": "workers: 1, 2, 4; nothing changed" * 9}],
    )
    lines = format_activity(activity, columns).splitlines()
    assert max(map(count_columns, lines)) <= columns
    assert lines[0].startswith("process"[: max(0, columns - 3) // 2])


def test_long_names_are_shortened_in_the_middle():
    assert shorten("/data/web/train.array_record", 20) == "/data/web...y_record"
    assert [shorten("abcdefgh", columns) for columns in (8, 7, 5, 2)] == [
        "abcdefgh",
        "ab...gh",
        "a...h",
        "..",
    ]
    wide = "\N{CJK UNIFIED IDEOGRAPH-8CC7}"
    assert shorten(wide * 9, 10) == f"{wide * 2}...{wide}"


def test_color_shows_the_state_of_each_worker():
    stopped = worker_of(2, state="stopped")
    activity = activity_of(loaders=[loader_of(*WORKERS, stopped)])
    plain = format_activity(activity, 79)
    colored = format_activity(activity, 79, has_color=True)
    lines = colored.splitlines()[3:]
    bold, dim, red, green, yellow = (f"\x1b[{n}m" for n in (1, 2, 31, 32, 33))
    assert lines[0].startswith(f"{bold}loader 0 (grain)\x1b[0m{yellow}: limit data, ")
    assert [line.split("  ")[-1] for line in lines[-3:]] == [
        f"{green}computing 1,216 to 1,223\x1b[0m",
        f"{dim}waiting for work\x1b[0m",
        f"{red}stopped: 1,216 to 1,223\x1b[0m",
    ]
    for code in (bold, dim, red, green, yellow, "\x1b[0m"):
        colored = colored.replace(code, "")
    assert colored == plain


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"TERM": "xterm"}, True),
        ({"TERM": "xterm", "NO_COLOR": ""}, True),
        ({"TERM": "xterm", "NO_COLOR": "1"}, False),
        ({"TERM": "dumb"}, False),
    ],
)
def test_color_is_for_terminals_that_can_show_it(monkeypatch, variables, expected):
    monkeypatch.delenv("NO_COLOR", raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert not shows_color()  # Tests write to a file.
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    assert shows_color() == expected


def test_counts_by_source_are_shown_until_the_iterator_ends():
    ds = grain.MapDataset.mix({"web": grain.MapDataset.range(4), "code": BYTES})
    iterator = iter(ds.batch(2, batch_fn=list))
    next(iterator)
    assert read_facts(os.getpid(), "counts") == []
    iterator.consumed(LENGTHS)
    expected = {
        "web": {"elements": 1, "tokens": None, "epochs": 0.25},
        "code": {"elements": 1, "tokens": 7, "epochs": 0.5},
    }
    assert read_facts(os.getpid(), "counts") == [expected]
    lines = format_activity(activity_of(sources=[expected])).splitlines()
    assert lines[3:6] == [
        "  delivered from  elements  tokens  epochs",
        "  web                    1       -    0.25",
        "  code                   1       7    0.50",
    ]
    del iterator
    assert read_facts(os.getpid(), "counts") == []


def test_decision_about_auto_workers_is_shown():
    text = 'workers ("auto"): 1, 2; the consumer waits 1% of the time'
    activity = activity_of(auto_workers=[{"workers": 2, "text": text}])
    assert f"  {text}" in format_activity(activity).splitlines()
