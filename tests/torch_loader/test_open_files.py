"""Tests of open files in datasets, which each worker reads at its own position."""

import os

import pytest
import torch.utils.data

from gristmill.torch import DataLoader

pytestmark = pytest.mark.multiprocess


class Next(torch.utils.data.Dataset):
    """Returns the next byte of a file, for any key."""

    def __init__(self, path, **options):
        self.path = path
        self.options = options
        self.file = open(path, **options)  # noqa: SIM115
        self.file.read(1)

    def __len__(self):
        return 12

    def __getitem__(self, index):
        return self.file.read(1)


class OpenedThere(Next):
    """Opens its file when it is unpickled."""

    def __getstate__(self):
        return {**vars(self), "file": None}

    def __setstate__(self, state):
        vars(self).update(state)
        self.file = open(self.path, **self.options)  # noqa: SIM115
        self.file.read(1)


class FileItself(Next):
    """Returns the open file."""

    def __getitem__(self, index):
        return self.file


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "letters"
    path.write_text("-abcdef")
    return path


OPTIONS = [{}, {"mode": "rb"}, {"mode": "rb", "buffering": 0}]
KINDS = [Next, OpenedThere]


@pytest.mark.parametrize("options", OPTIONS, ids=["text", "buffered", "raw"])
@pytest.mark.parametrize("kind", KINDS)
def test_launcher_workers_do_not_share_position(path, kind, options):
    dataset = kind(path, **options)
    with dataset.file:
        loader = DataLoader(
            dataset, None, num_workers=2, multiprocessing_context="launcher"
        )
        for _ in range(2):
            letters = "aabbccddeeff"
            expected = [x.encode() if options else x for x in letters]
            assert list(loader) == expected


@pytest.mark.parametrize("kind", KINDS)
def test_forked_workers_share_position_like_torch(path, kind):
    dataset = kind(path, mode="rb", buffering=0)
    with dataset.file:
        found = []
        for loader in (torch.utils.data.DataLoader, DataLoader):
            os.lseek(dataset.file.fileno(), 1, os.SEEK_SET)
            options = {"num_workers": 1, "multiprocessing_context": "fork"}
            found.append([*loader(dataset, None, **options)])
            found.append(dataset.file.tell())
        assert found[:2] == found[2:]


@pytest.mark.filterwarnings("ignore:Got pickle error:UserWarning")
@pytest.mark.parametrize("loader", [torch.utils.data.DataLoader, DataLoader])
def test_open_file_is_refused_by_spawn_like_torch(path, loader):
    dataset = Next(path)
    text = (
        r"cannot pickle '(_io\.)?TextIO"  # Without the module name from Python 3.13 on.
    )
    with dataset.file, pytest.raises(TypeError, match=text):
        list(loader(dataset, num_workers=1, multiprocessing_context="spawn"))


@pytest.mark.filterwarnings("ignore:Got pickle error:UserWarning")
def test_launcher_refuses_deleted_open_file(path):
    dataset = Next(path)
    path.unlink()
    loader = DataLoader(
        dataset, None, num_workers=1, multiprocessing_context="launcher"
    )
    with dataset.file, pytest.raises(TypeError, match=r": dataset\.file is the open"):
        list(loader)


@pytest.mark.parametrize("context", ["fork", "launcher"])
def test_batch_may_be_an_open_file(path, context):
    dataset = FileItself(path)
    with dataset.file:
        loader = DataLoader(
            dataset, None, num_workers=1, multiprocessing_context=context
        )
        with next(iter(loader)) as found:
            assert found.read() == "abcdef"
