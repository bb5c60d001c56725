"""`gristmill trace` lists the records behind steps of a run."""

import json
import re
import sys

import pyarrow.parquet as pq
import pytest

from support.cli import run

PROGRAM = """
import numpy as np
import gristmill as grain

class Documents:
    def __init__(self, name, lengths):
        self.name = name
        self._lengths = np.array(lengths)

    def __len__(self):
        return len(self._lengths)

    def __getitem__(self, index):
        return np.full(self._lengths[index], index)

    def lengths(self):
        return self._lengths

A, B = Documents("a", [3, 1, 2]), Documents("b", [2, 5])

def mixture():
    parts = [grain.MapDataset.source(part).repeat() for part in (A, B)]
    return grain.MapDataset.mix(parts, [2, 1]).batch(3, batch_fn=list)

def rows():
    ds = mixture().to_iter_dataset()
    parts = [grain.MapDataset.source(part).repeat() for part in (A, B)]
    ds = grain.MapDataset.mix(parts).map(lambda x: {"t": x}).to_iter_dataset()
    Packed = grain.experimental.ConcatThenSplitIterDataset
    return Packed(ds, length_struct={"t": 4}).batch(2)

def streams():
    options = grain.MultiprocessingOptions(num_workers=2)
    return mixture().to_iter_dataset().mp_prefetch(options)

def loader():
    return grain.load(range(10, 18), batch_size=2, num_epochs=1)

def number():
    return 5
"""


@pytest.fixture
def program(tmp_path, monkeypatch):
    """Return a new module, and the function that writes the state after n outputs."""
    (tmp_path / "train_program.py").write_text(PROGRAM)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "train_program", raising=False)
    import train_program

    def save(function, outputs):
        iterator = iter(getattr(train_program, function)())
        for _ in range(outputs):
            next(iterator)
        state = iterator.get_state()
        iterator.close()
        text = state if isinstance(state, bytes) else json.dumps(state).encode()
        (tmp_path / "state.json").write_bytes(text)
        return "state.json"

    yield save
    monkeypatch.delitem(sys.modules, "train_program", raising=False)


def traced(state, steps, function, *options):
    done = run("trace", state, "--steps", steps, "--program", function, *options)
    assert (done.status, done.err) == (0, "")
    return done.out


MIXTURE = """\
step\trow\tsource\tkey\tepoch\tbegin\tend
2\t0\ta\t1\t1\t0\t1
2\t1\ta\t2\t1\t0\t2
2\t2\tb\t0\t1\t0\t2
3\t0\ta\t0\t2\t0\t3
3\t1\ta\t1\t2\t0\t1
3\t2\tb\t1\t1\t0\t5
"""


@pytest.mark.parametrize("outputs", [0, 1, 2, 4])
def test_steps_are_those_of_the_run_for_any_state(program, outputs):
    state = program("mixture", outputs)
    assert traced(state, "2-3", "train_program:mixture") == MIXTURE


def test_beginning_needs_no_state(program):
    assert traced("-", "2-3", "train_program:mixture") == MIXTURE


def test_packed_rows_have_spans(program):
    state = program("rows", 1)
    lines = traced(state, "1", "train_program:rows", "--saved-at", 1).splitlines()
    assert lines[1:] == [
        "1\t0\tb\t1\t0\t2\t5",
        "1\t0\ta\t2\t0\t0\t1",
        "1\t1\ta\t2\t0\t1\t2",
        "1\t1\tb\t0\t1\t0\t2",
        "1\t1\ta\t0\t1\t0\t1",
    ]


@pytest.mark.multiprocess
def test_state_of_streams_has_its_step(program):
    state = program("streams", 3)
    lines = traced(state, "3", "train_program:streams").splitlines()
    assert lines[1].split("\t")[:4] == ["3", "0", "a", "0"]


def test_loader_lists_keys(program):
    state = program("loader", 1)
    out = traced(
        state, "2", "train_program:loader", "--saved-at", 1, "--format", "json"
    )
    rows = [json.loads(line) for line in out.splitlines()]
    assert [(row["step"], row["key"]) for row in rows] == [(2, 4), (2, 5)]
    assert rows[0]["end"] is None


def test_parquet_file_has_the_rows(program, tmp_path):
    state = program("mixture", 0)
    options = ["--format", "parquet", "--output", "rows.parquet"]
    assert traced(state, "2-3", "train_program:mixture", *options) == ""
    table = pq.read_table(tmp_path / "rows.parquet").to_pydict()
    assert list(table) == MIXTURE.splitlines()[0].split("\t")
    assert table["key"] == [1, 2, 0, 0, 1, 1]


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["--steps", "3-2"], 2, "'3-2' is not a range"),
        (["--program", "train"], 2, "must be MODULE:FUNCTION"),
        (["--program", "absent_program:f"], 1, "No module named 'absent_program'"),
        (["--program", "train_program:absent"], 1, "train_program has no absent"),
        (["--program", "train_program:np"], 1, "expected a function that returns"),
        (["--program", "train_program:number"], 1, "expected a dataset .* got int"),
        (["--program", "train_program:rows"], 1, "expected a dict with"),
        (["--program", "train_program:streams"], 1, "state.json: .*Expected the state"),
        (["--program", "train_program:loader"], 1, "Pass the number of steps"),
        (["--format", "parquet"], 2, "needs --output"),
    ],
)
def test_wrong_arguments_are_explained(program, arguments, status, message):
    state = program("mixture", 1)
    base = {"--steps": "2-3", "--program": "train_program:mixture"}
    base |= dict(zip(arguments[::2], arguments[1::2], strict=True))
    done = run("trace", state, *[part for pair in base.items() for part in pair])
    assert done.status == status
    assert re.search(message, done.err)


def test_step_after_the_end_is_an_error(program):
    state = program("loader", 1)
    done = run(
        "trace",
        state,
        "--steps",
        "3-9",
        "--program",
        "train_program:loader",
        "--saved-at",
        1,
    )
    assert done.status == 1
    assert done.err == "gristmill: the run ends before step 4.\n"


def test_failure_before_the_first_row_writes_nothing(program, tmp_path):
    state = program("mixture", 1)
    (tmp_path / "rows.tsv").write_text("earlier")
    command = ["trace", state, "--steps", 1, "--program", "train_program:streams"]
    done = run(*command, "--output", "rows.tsv")
    assert (done.status, run(*command).out) == (1, "")
    assert (tmp_path / "rows.tsv").read_text() == "earlier"


def test_state_must_be_json(program, tmp_path):
    (tmp_path / "bad.json").write_text("{")
    done = run("trace", "bad.json", "--steps", 1, "--program", "train_program:mixture")
    assert done.status == 1
    assert "bad.json: expected the JSON of iterator.get_state()" in done.err


def test_unknown_step_of_a_state_is_asked_for(program):
    state = program("rows", 1)
    done = run("trace", state, "--steps", 1, "--program", "train_program:rows")
    assert done.status == 1
    assert "Pass the number of steps" in done.err
