"""The types of the installed package, used by programs of users.

``tests/typing`` contains users' programs. They state types by ``assert_type`` and, on
each line with a mistake, the error that a checker reports. Checkers run in ``make
check-programs``, because they take longer than most tests.
"""

import pathlib
import pickle
import runpy
import typing

import pytest

import gristmill as grain
from support import extras
from support.places import TESTS

SCRIPTS = TESTS / "typing"
PACKAGE = pathlib.Path(grain.__file__).parent


@pytest.mark.parametrize("name", sorted(path.name for path in SCRIPTS.glob("use_*.py")))
def test_programs_run(name):
    extras.need("orbax")
    runpy.run_path(str(SCRIPTS / name))


def test_package_is_marked_as_typed():
    assert (PACKAGE / "py.typed").is_file()


def test_every_compiled_module_has_a_stub():
    modules = [
        *PACKAGE.glob("_core.*.so"),
        *PACKAGE.glob("_hot/*.so"),
    ]
    stubs = [path.with_name(path.name.partition(".")[0] + ".pyi") for path in modules]
    assert len(stubs) > 1
    assert [stub.name for stub in stubs if not stub.is_file()] == []


GENERIC = [
    grain.DataLoader,
    grain.DataLoaderIterator,
    grain.DatasetIterator,
    grain.IterDataset,
    grain.MapDataset,
    grain.RandomAccessDataSource,
    grain.Record,
]


@pytest.mark.parametrize("cls", GENERIC, ids=lambda cls: cls.__name__)
def test_generic_classes_can_be_subscripted_at_run_time(cls):
    assert typing.get_origin(cls[int]) is cls
    assert typing.get_args(cls[int]) == (int,)


class Squares(grain.MapDataset[int]):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        return self.slice(index) if isinstance(index, slice) else index**2


class Rows(grain.RandomAccessDataSource[bytes]):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        return bytes([index])


def test_subscripted_class_is_a_base():
    assert list(pickle.loads(pickle.dumps(Squares()))) == [0, 1, 4, 9]
    assert list(grain.load(Rows(), num_epochs=1)) == [b"\0", b"\1", b"\2", b"\3"]
    assert isinstance(Rows(), grain.RandomAccessDataSource)
    assert isinstance(Squares(), grain.MapDataset)
    assert not isinstance(3, grain.RandomAccessDataSource)


def test_annotations_can_be_read_at_run_time():
    for function in (
        grain.load,
        grain.DataLoader.__init__,
        grain.MapDataset.batch,
        grain.MapDataset.map,
        grain.MapDataset.filter,
        grain.IterDataset.map,
        grain.DatasetIterator.get_state,
        grain.transforms.Map.map,
    ):
        assert "return" in typing.get_type_hints(function)
