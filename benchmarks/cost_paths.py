"""The hot paths whose instructions costs.py counts.

    python cost_paths.py REQUESTS.so PATH ...

runs them under callgrind. Each first runs uncounted, until a new iterator stops timing
itself, then for two counts of items. Clocks are fixed, because the length of some
blocks depends on the time of the last one. Garbage is collected before, because
otherwise a collection would fall into one of the two runs at random.
"""

import ctypes
import dataclasses
import gc
import itertools
import os
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

# Before the import of Gristmill, which keeps references to these functions.
time.perf_counter_ns = itertools.count(0, 1000).__next__
time.perf_counter = itertools.count(0.0, 1e-6).__next__

import gristmill as grain  # noqa: E402
from gristmill._hot import slot_reader, slot_writer, views  # noqa: E402

# More than the number of calls that a new iterator times.
WARM_UP = 1100

# Advances a path by a number of items.
Run = Callable[[int], Any]


@dataclasses.dataclass(frozen=True)
class Path:
    """A hot path.

    Attributes:
        make: Creates the function to count.
        items: Number of items in the short run; the long one takes three times as many.
            Runs of these lengths begin equally many blocks of keys.
    """

    make: Callable[[], Run]
    items: int


PATHS: dict[str, Path] = {}


def path(items: int) -> Callable[[Callable[[], Run]], Callable[[], Run]]:
    """Register a path, named after the function that makes it."""

    def add(make: Callable[[], Run]) -> Callable[[], Run]:
        PATHS[make.__name__] = Path(make, items)
        return make

    return add


def take_items(iterator: Iterator[Any]) -> Run:
    """Return a function that takes items from an iterator."""

    def run(count: int) -> None:
        for _ in itertools.repeat(None, count):
            next(iterator)

    return run


def call_numbered(call: Callable[[int], Any]) -> Run:
    """Return a function that calls `call` with 0, 1, ..."""

    def run(count: int) -> None:
        for number in range(count):
            call(number)

    return run


class Numbers:
    def __len__(self) -> int:
        return 10**6

    def __getitem__(self, index: int) -> int:
        return index


ROW = np.zeros(16, np.float32)


class Rows(Numbers):
    def __getitem__(self, index: int) -> Any:
        return {"x": ROW, "label": index}


class AddOne(grain.MapTransform):
    def map(self, element: Any) -> Any:
        return {"x": element["x"] + 1, "label": element["label"]}


class Draw(grain.RandomMapTransform):
    def random_map(self, element: Any, rng: np.random.Generator) -> Any:
        return element + rng.random()


class Even(grain.FilterTransform):
    def filter(self, element: Any) -> bool:
        return element % 2 == 0


def sampler() -> grain.IndexSampler:
    return grain.IndexSampler(10**6, shuffle=True, seed=0, num_epochs=None)


def run_loader(source: Any, *operations: Any) -> Run:
    loader = grain.DataLoader(
        data_source=source, sampler=sampler(), operations=operations
    )
    return take_items(iter(loader))


# Samplers.


@path(200)
def sampler_index() -> Run:
    return call_numbered(sampler().__getitem__)


@path(4)
def sampler_block() -> Run:
    keys = sampler().record_keys
    return call_numbered(lambda number: keys(4096 * number, 1, 4096))


# Loaders. A block of 4,096 keys serves `items` batches.


@path(16)
def loader_numbers() -> Run:
    return run_loader(Numbers(), grain.Batch(256))


@path(64)
def loader_array() -> Run:
    return run_loader(np.zeros((10**6, 16), np.float32), grain.Batch(64))


@path(512)
def loader_unbatched() -> Run:
    return run_loader(Numbers())


@path(16)
def loader_map() -> Run:
    return run_loader(Rows(), AddOne(), grain.Batch(64))


@path(16)
def loader_random_map() -> Run:
    return run_loader(Numbers(), Draw(), grain.Batch(64))


@path(16)
def loader_filter() -> Run:
    return run_loader(Numbers(), Even(), grain.Batch(64))


# Datasets.


@path(200)
def map_dataset_index() -> Run:
    dataset = grain.MapDataset.range(10**6).shuffle(seed=0).map(lambda x: x + 1)
    return call_numbered(dataset.__getitem__)


@path(8)
def map_dataset_batches() -> Run:
    dataset = grain.MapDataset.source(Rows()).seed(0).shuffle().map(AddOne())
    return take_items(iter(dataset.to_iter_dataset().batch(64)))


@path(1024)
def map_dataset_elements() -> Run:
    dataset = grain.MapDataset.range(10**6).seed(0).shuffle().map(lambda x: x + 1)
    return take_items(iter(dataset.to_iter_dataset()))


@path(512)
def iter_dataset_filter() -> Run:
    dataset = grain.MapDataset.range(10**6).to_iter_dataset().map(lambda x: x + 1)
    return take_items(iter(dataset.filter(lambda x: x % 2 == 0)))


@path(512)
def iter_dataset_mix() -> Run:
    dataset = grain.MapDataset.range(10**6).to_iter_dataset()
    parts = [dataset, dataset.map(lambda x: x + 1)]
    return take_items(iter(grain.IterDataset.mix(parts, [0.3, 0.7])))


def documents() -> grain.IterDataset[Any]:
    lengths = np.random.default_rng(0).integers(10, 300, 1000)
    texts = [{"tokens": np.arange(length, dtype=np.int32)} for length in lengths]
    return grain.MapDataset.source(texts).repeat().to_iter_dataset()


@path(64)
def pack_first_fit() -> Run:
    rows = grain.experimental.FirstFitPackIterDataset(
        documents(), length_struct={"tokens": 512}, num_packing_bins=16
    )
    return take_items(iter(rows))


@path(256)
def pack_concat_split() -> Run:
    rows = grain.experimental.ConcatThenSplitIterDataset(
        documents(), length_struct={"tokens": 512}
    )
    return take_items(iter(rows))


def mixed_by_tokens() -> Iterator[Any]:
    lengths = np.random.default_rng(0).integers(10, 300, 1000)
    parts = [grain.MapDataset.range(1000).shuffle(seed).repeat() for seed in range(2)]
    mixed = grain.MapDataset.mix(
        parts, [0.3, 0.7], unit="tokens", lengths=[lengths, lengths]
    )
    return iter(mixed.to_iter_dataset(grain.ReadOptions(0, 0)))


@path(1024)
def mix_tokens() -> Run:
    return take_items(mixed_by_tokens())


# A call of `consumed()` adds nothing to the elements that follow.
@path(1024)
def mix_tokens_after_consumed() -> Run:
    iterator = mixed_by_tokens()
    next(iterator)
    iterator.consumed()
    return take_items(iterator)


# Work of workers and of their parent on a batch, in one process.


@path(64)
def slot_of_arrays() -> Run:
    slot = np.zeros(1 << 20, np.uint8)
    batch = {"x": np.zeros((64, 16), np.float32), "label": np.arange(64)}
    keys = np.arange(64)

    def cross(number: int) -> Any:
        writer = slot_writer.SlotWriter(slot.ctypes.data, slot.nbytes)
        used = slot_writer.encode(writer, [(batch, keys, (number,))], None)
        return slot_reader.decode(
            slot.ctypes.data, used, 0, lambda: views.SlotView(slot), 1 << 16
        )

    return call_numbered(cross)


# torch, imported only when a path needs it: that takes a minute under callgrind.


def run_torch_loader(dataset: Any, **options: Any) -> Run:
    import gristmill.torch

    return take_items(iter(gristmill.torch.DataLoader(dataset, **options)))


class TenTensors:
    def __init__(self) -> None:
        import torch

        self.row = torch.zeros(16)

    def __len__(self) -> int:
        return 10**6

    def __getitem__(self, index: int) -> Any:
        return {f"column{number}": self.row for number in range(10)}


class OneTensor(TenTensors):
    def __getitem__(self, index: int) -> Any:
        return self.row


@path(256)
def torch_single() -> Run:
    return run_torch_loader(range(10**6), batch_size=1)


@path(8)
def torch_ints() -> Run:
    return run_torch_loader(range(10**6), batch_size=256)


@path(16)
def torch_tensor_dataset() -> Run:
    import torch
    from torch.utils.data import RandomSampler, TensorDataset

    dataset = TensorDataset(torch.zeros(10**5, 5))
    chosen = RandomSampler(dataset, num_samples=10**6)
    return run_torch_loader(dataset, batch_size=256, sampler=chosen)


@path(4)
def torch_dict() -> Run:
    return run_torch_loader(TenTensors(), batch_size=32)


def answer_torch_requests(dataset: Any, *requests: Any, in_batches: bool = True) -> Run:
    """Answer requests like a worker, and decode the answers like its parent."""
    import torch
    from torch.utils.data import default_collate, default_convert

    from gristmill._torch.batches import encoding, slot_collation
    from gristmill._torch.indices import requests as wire
    from gristmill._torch.workers.fetch import FetchProgram

    program = FetchProgram(
        dataset=dataset,
        iterable=False,
        auto_collation=in_batches,
        collate_fn=default_collate if in_batches else default_convert,
        drop_last=False,
        base_seed=0,
        workers=1,
        worker_init_fn=None,
        collate_rules=slot_collation.rules(),
        shared_seed=None,
        default_dtype=torch.float32,
        native=in_batches,
        epoch=0,
    )
    stream = program.open_stream(0)
    requests_in_turn = itertools.cycle(requests)

    def cross(_: int) -> Any:
        element = stream.answer(wire.pack(next(requests_in_turn)), np.empty)
        stream.leave_slot()
        return encoding.decode(element)[0]

    return call_numbered(cross)


@path(64)
def torch_worker_sample() -> Run:
    return answer_torch_requests(OneTensor(), 3, 7, in_batches=False)


@path(64)
def torch_worker_single() -> Run:
    from gristmill._torch.indices.draws import IndexBatch

    return answer_torch_requests(
        range(10**6), IndexBatch(range(3, 4)), IndexBatch(np.array([7]))
    )


@path(4)
def torch_worker_dict() -> Run:
    from gristmill._torch.indices.draws import IndexBatch

    return answer_torch_requests(TenTensors(), IndexBatch(range(32)))


def main(library: str, *names: str) -> None:
    requests = ctypes.CDLL(library)
    for name in names:
        run, items = PATHS[name].make(), PATHS[name].items
        run(max(WARM_UP, 4 * items))
        gc.collect()
        gc.disable()
        for count in (items, 3 * items):
            requests.begin()
            run(count)
            requests.end(f"{name}:{count}".encode())
        gc.enable()
        print(name, flush=True)
    # Skip the interpreter's exit, which takes seconds under callgrind.
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
