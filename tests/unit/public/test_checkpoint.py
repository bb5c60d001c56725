"""Tests that the Orbax handler reads and writes the same files as Grain's."""

import json
import pathlib

import pytest

from faults.scripts import run
from gristmill import checkpoint

grain = pytest.importorskip("grain")


class Iterator:
    """An iterator whose state is bytes, like a DataLoader's, or a dict."""

    def __init__(self, state):
        self.state = state
        self.prefetching = False

    def get_state(self):
        return self.state

    def set_state(self, state):
        self.state = state

    def start_prefetch(self):
        self.prefetching = True


STATES = [b'{\n    "version": 2\n}', {"next_index": 3}]
ELSEWHERE = [b"{}", {"next_index": 0}]


@pytest.mark.parametrize("which", [0, 1])
def test_saved_state_is_restored(tmp_path, which):
    handler = checkpoint.CheckpointHandler()
    handler.save(tmp_path, Iterator(STATES[which]))
    item = Iterator(ELSEWHERE[which])
    assert handler.restore(tmp_path, item) is item
    assert item.state == STATES[which]
    assert item.prefetching


def test_file_matches_grain(tmp_path):
    theirs = grain.checkpoint.CheckpointHandler()
    (tmp_path / "ours").mkdir()
    (tmp_path / "theirs").mkdir()
    checkpoint.CheckpointHandler().save(tmp_path / "ours", Iterator(STATES[0]))
    theirs.save(tmp_path / "theirs", Iterator(STATES[0]))
    [ours], [expected] = (
        [(file.name, file.read_bytes()) for file in folder.iterdir()]
        for folder in (tmp_path / "ours", tmp_path / "theirs")
    )
    assert ours == expected


def test_dict_states_are_indented_json(tmp_path):
    checkpoint.CheckpointHandler().save(str(tmp_path), Iterator(STATES[1]))
    [file] = tmp_path.iterdir()
    assert file.read_text() == json.dumps(STATES[1], indent=4)


def test_missing_file_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"process_0-of-1\.json does not exist"):
        checkpoint.CheckpointHandler().restore(tmp_path, Iterator(b""))


def test_missing_iterator_is_an_error(tmp_path):
    with pytest.raises(ValueError, match="item and args must not both be None"):
        checkpoint.CheckpointHandler().save(tmp_path)


def test_other_protocol_methods_exist():
    handler = checkpoint.CheckpointHandler()
    folder = pathlib.Path("nowhere")
    assert handler.structure(folder) is None
    assert handler.metadata(folder) is None
    assert handler.finalize(folder) is None
    assert handler.close() is None
    theirs = grain.checkpoint.CheckpointHandler
    assert handler.typestr() == checkpoint.CheckpointHandler.typestr()
    assert handler.typestr() == theirs.typestr()


def test_unknown_names_are_attribute_errors():
    assert not hasattr(checkpoint, "CheckpointSomething")


@pytest.mark.parametrize(
    ("first", "second"),
    [("gristmill", "gristmill"), ("gristmill", "grain"), ("grain", "gristmill")],
)
def test_orbax_saves_and_restores_across_libraries(tmp_path, first, second):
    pytest.importorskip("orbax.checkpoint")
    run("checkpoint/orbax_across_libraries", first, second, tmp_path / "run")


def test_names_are_absent_without_orbax():
    run("checkpoint/without_orbax")
