"""Records the observable behavior of a loader: batches, warnings, errors, draws.

A `Case` describes a loader as data. `seen(DataLoader, case)` builds it from a loader
class and returns everything that a script could observe. torch's class is the oracle.
"""

import contextlib
import dataclasses
import itertools
import warnings
import zlib
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import numpy as np
import torch
from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter

from torch_loader.datasets_zoo import COLLATIONS, DATASETS, SAMPLERS

# A limit, because a wrong loader may be endless.
MOST_BATCHES = 60

Sampler: TypeAlias = str | Callable[[Any, int, Any], Any]


@dataclasses.dataclass(frozen=True)
class Case:
    """A loader, how it is iterated and the seeds of all generators.

    Args:
        dataset: A name in `DATASETS`.
        size: Length of the dataset.
        sampler: A name in `SAMPLERS` for ``sampler=``, such a function, or
            None.
        batch_sampler: The same for ``batch_sampler=``.
        collate_fn: A name in `COLLATIONS`, or None.
        generator: Whether the loader gets its own generator.
        options: Other arguments of the loader.
        stops: The number of batches after which each epoch stops; None finishes it.
        asks_length: Whether to call ``len(loader)`` first, like progress bars.
        seed: Seeds torch.
    """

    dataset: str
    size: int = 10
    sampler: Sampler | None = None
    batch_sampler: Sampler | None = None
    collate_fn: str | None = None
    generator: bool = False
    options: tuple[tuple[str, Any], ...] = ()
    stops: tuple[int | None, ...] = (None, None)
    asks_length: bool = False
    seed: int = 0


def seen(loader_class: Any, case: Case) -> list[Any]:
    """Return all events of a loader, in order."""
    events: list[Any] = []
    torch.manual_seed(case.seed)
    generator = torch.Generator().manual_seed(case.seed + 1) if case.generator else None
    with _all_warnings() as warned:
        loader = _attempt(events, lambda: _built(loader_class, case, generator))
        if loader is not None:
            if case.asks_length:
                _attempt(events, lambda: events.append(("length", len(loader))))
            for stop in case.stops:
                _epoch(events, loader, stop, generator)
            _end(loader._iterator)
    events += [("warning", w.category.__name__, str(w.message)) for w in warned]
    return events


@contextlib.contextmanager
def _all_warnings() -> Iterator[list[warnings.WarningMessage]]:
    always = torch.is_warn_always_enabled()
    torch.set_warn_always(True)
    try:
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            # A warning of NumPy when torch 2.6 collates its bools.
            warnings.filterwarnings("ignore", ".*'np.bool' scalars", DeprecationWarning)
            # torch does not warn about a loader without output.
            warnings.filterwarnings("ignore", "This loader gives no batch", UserWarning)
            yield warned
    finally:
        torch.set_warn_always(always)


def _built(loader_class: Any, case: Case, generator: Any) -> Any:
    dataset = DATASETS[case.dataset](case.size)
    options = dict(case.options)
    for name, kind in (
        ("sampler", case.sampler),
        ("batch_sampler", case.batch_sampler),
    ):
        if kind is not None:
            make = SAMPLERS[kind] if isinstance(kind, str) else kind
            options[name] = make(dataset, case.size, generator)
    if case.collate_fn is not None:
        options["collate_fn"] = COLLATIONS[case.collate_fn]
    return loader_class(dataset, generator=generator, **options)


def _epoch(events: list[Any], loader: Any, stop: int | None, generator: Any) -> None:
    batches = _attempt(events, lambda: iter(loader))
    if batches is not None:
        _iterate(events, batches, stop, generator)
        if not loader.persistent_workers:
            _end(batches)


def _end(batches: Any) -> None:
    """End workers now, because a forked worker of torch may wait for others."""
    if isinstance(batches, _MultiProcessingDataLoaderIter):
        batches._shutdown_workers()


def _iterate(events: list[Any], batches: Any, stop: int | None, generator: Any) -> None:
    events.append(("draws", _draws(generator)))
    _attempt(events, lambda: events.append(("left", len(batches))))
    for _ in itertools.islice(itertools.count(), stop or MOST_BATCHES):
        try:
            events.append(("batch", canonical(next(batches))))
        except StopIteration:
            events.append(("end", _draws(generator)))
            return
        except Exception as error:
            events.append(_told(error))
        events.append(("draws", _draws(generator)))


def _attempt(events: list[Any], action: Callable[[], Any]) -> Any:
    try:
        return action()
    except Exception as error:
        events.append(_told(error))
        return None


def _told(error: Exception) -> tuple[str, ...]:
    """Describe an error without a worker's traceback, which contains file names."""
    text = str(error)
    if "\nOriginal Traceback" in text:
        lines = text.splitlines()
        text = f"{lines[0]} ... {lines[-1]}"
    return ("error", type(error).__name__, text)


def _draws(generator: Any) -> list[int]:
    states = [torch.get_rng_state()]
    if generator is not None:
        states.append(generator.get_state())
    return [zlib.crc32(state.numpy().tobytes()) for state in states]


def canonical(batch: Any) -> Any:
    """Convert a batch to a value that compares by type, value and layout."""
    kind = type(batch).__name__
    if isinstance(batch, torch.Tensor):
        plain = batch.detach()
        return (
            kind,
            str(plain.dtype),
            tuple(plain.shape),
            plain.stride() if plain.layout is torch.strided else None,
            batch.requires_grad,
            repr(plain.tolist()),
        )
    if isinstance(batch, np.ndarray):
        return (kind, str(batch.dtype), batch.shape, repr(batch.tolist()))
    if isinstance(batch, dict):
        return (kind, [(repr(key), canonical(batch[key])) for key in batch])
    if isinstance(batch, (list, tuple)):
        return (kind, [canonical(part) for part in batch])
    return (kind, repr(batch))
