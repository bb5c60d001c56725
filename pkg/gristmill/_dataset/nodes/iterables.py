"""Opens iterables of users: one share of several, in an epoch, at a position.

A position is saved by the methods that the iterable or its iterator has: those of
torchdata and Hugging Face's datasets, ``state_dict`` and ``load_state_dict``, or those
of Grain's iterators, ``get_state`` and ``set_state``.
"""

from __future__ import annotations

import copy
import inspect
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from gristmill._base.argument_checks import kind
from gristmill._dataset.model.states import copy_state

# Methods that return a state, and methods that go to one. Nodes of torchdata are
# iterators with the last pair.
_METHODS = (
    ("state_dict", "load_state_dict"),
    ("get_state", "set_state"),
    ("state_dict", "reset"),
)
SHARE_PARAMETERS = ("shard_index", "shard_count")
_EXPECTED = (
    "IterDataset.from_iterable needs an iterable, or a function that returns one,"
    " such as a generator function"
)


class OpenIterable:
    """One iteration over an iterable.

    Args:
        iterable: The iterable, which no other iteration uses if it has a state.
        keeps_state: Whether to use the methods of the iterable that return states.

    Attributes:
        iterator: Iterates over the iterable. `restore` may replace it.
    """

    def __init__(self, iterable: Any, keeps_state: bool) -> None:
        self._iterable = iterable
        self._keeps_state = keeps_state
        self._begin()

    def _begin(self) -> None:
        """Begin an iteration, and find the methods that return states."""
        self.iterator: Iterator[Any] = iter(self._iterable)
        # Functions that return the states of the iterable, of its iterator, or of both.
        self._getters: dict[str, Callable[[], Any]] = {}
        levels = {"iterable": self._iterable, "iterator": self.iterator}
        if self.iterator is self._iterable:
            del levels["iterable"]
        for name, each in levels.items() if self._keeps_state else ():
            if names := state_methods(each):
                self._getters[name] = getattr(each, names[0])

    def state(self) -> dict[str, Any]:
        """Return the states of the iterable and of its iterator, if they have one."""
        return {name: copy_state(get()) for name, get in self._getters.items()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go to the position that `state` describes.

        Raises:
            KeyError: The state of a part is missing.
        """
        if "iterable" in self._getters:
            _load(self._iterable, state["iterable"])
            self._begin()
        if "iterator" in self._getters:
            _load(self.iterator, state["iterator"])

    def close(self) -> None:
        """Close the iterator: ``finally`` of a generator runs."""
        close = getattr(self.iterator, "close", None)
        if callable(close):
            close()


def state_methods(iterable_or_iterator: Any) -> tuple[str, ...]:
    """Return the names of the methods that get and set a state; () without them."""
    for names in _METHODS:
        if all(callable(getattr(iterable_or_iterator, name, None)) for name in names):
            return names
    return ()


def _load(iterable_or_iterator: Any, state: Any) -> None:
    # Hugging Face's datasets ignore a state of another epoch.
    if isinstance(state, Mapping) and "epoch" in state:
        _set_epoch(iterable_or_iterator, state["epoch"])
    _, load = state_methods(iterable_or_iterator)
    getattr(iterable_or_iterator, load)(copy_state(state))


def check_iterable(iterable: Any, replay: bool) -> None:
    """Raise TypeError if something cannot be iterated over, or only once."""
    if isinstance(iterable, (str, bytes, os.PathLike)):
        raise TypeError(
            f"{_EXPECTED}, got {iterable!r:.200}. To read a text file, pass lambda:"
            " open(path). To read records, pass a source to MapDataset.source(...)."
        )
    if not isinstance(iterable, Iterable):
        if not callable(iterable):
            raise TypeError(f"{_EXPECTED}, got {kind(iterable)}.")
        _check_parameters(iterable)
    elif isinstance(iterable, Iterator) and (replay or not state_methods(iterable)):
        name = getattr(iterable, "__name__", "")
        example = f"lambda: {'open' if hasattr(iterable, 'read') else kind(iterable)}"
        example = f"{name}, not {name}()" if name.isidentifier() else f"{example}(...)"
        raise TypeError(
            f"{_EXPECTED}, got a {kind(iterable)}, which can be iterated over only"
            " once. A dataset can be iterated over again. Pass the function that makes"
            f" it: from_iterable({example})."
        )


def takes_share(function: Any) -> bool:
    """Return True if a function returns one share of several."""
    return all(name in _parameters_of(function) for name in SHARE_PARAMETERS)


def check_shares(name: str, iterable: Any, count: int) -> None:
    """Raise ValueError if an iterable cannot be split into `count` shares.

    A function needs the parameters of a share; an iterable needs a method ``shard``,
    and at least as many ``num_shards`` if it has that attribute.
    """
    if not isinstance(iterable, Iterable):
        if takes_share(iterable):
            return
    elif callable(getattr(iterable, "shard", None)):
        shards = getattr(iterable, "num_shards", count)
        if not isinstance(shards, int) or shards >= count:
            return
        raise ValueError(
            f"{name} has {shards} shards, which cannot be divided among {count}"
            f" workers. Use at most {shards} workers, or make more shards:"
            " to_iterable_dataset(num_shards=...), reshard(), or more files."
        )
    raise ValueError(
        f"{name} cannot be divided among {count} workers: each would read all of it."
        " Pass a function with the parameters shard_index and shard_count, which"
        " returns its share, or an iterable with a method shard(num_shards, index), or"
        " use one worker."
    )


def open_iterable(
    iterable: Any, share: tuple[int, int], epoch: int | None, keeps_state: bool
) -> OpenIterable:
    """Begin to iterate over a share of an iterable, or of what a function returns.

    Args:
        iterable: The iterable, or the function.
        share: The number of the share, from 0, and the number of shares.
        epoch: For ``set_epoch``, if the iterable has that method; None: not called.
        keeps_state: See `OpenIterable`.

    Raises:
        TypeError: The function did not return an iterable, or the iterable cannot be
            copied.
    """
    if isinstance(iterable, Iterable):
        instance = _copy_if_stateful(_share_of(iterable, *share), epoch, keeps_state)
    else:
        share_arguments = dict(zip(SHARE_PARAMETERS, share, strict=True))
        instance = iterable(**(share_arguments if takes_share(iterable) else {}))
        if not isinstance(instance, Iterable):
            raise TypeError(f"{_EXPECTED}, but {iterable!r} returned {kind(instance)}.")
    if epoch is not None:
        _set_epoch(instance, epoch)
    return OpenIterable(instance, keeps_state)


def _share_of(iterable: Any, index: int, count: int) -> Any:
    """Return share `index` of `count` of an iterable; all of it if `count` is 1."""
    if count == 1:
        return iterable
    part = iterable.shard(num_shards=count, index=index)
    # `shard` of Hugging Face's datasets does not keep the epoch.
    epoch = getattr(iterable, "epoch", None)
    if isinstance(epoch, int):
        _set_epoch(part, epoch)
    return part


def _copy_if_stateful(iterable: Any, epoch: int | None, keeps_state: bool) -> Any:
    """Return a copy of an iterable if iterating changes it, else the iterable."""
    methods = state_methods(iterable) if keeps_state else ()
    sets_epoch = epoch is not None and callable(getattr(iterable, "set_epoch", None))
    if not methods and not sets_epoch:
        return iterable
    try:
        instance = _deep_copy(iterable)
    except Exception as error:
        raise TypeError(
            f"Each iteration needs its own copy of the {kind(iterable)}, which has a"
            f" state, but it cannot be copied: {error}. Pass a function that makes a"
            " new one: from_iterable(lambda: ...)."
        ) from error
    if "reset" in methods:
        instance.reset()  # The node may have been used.
    return instance


def _deep_copy(iterable: Any) -> Any:
    try:
        return copy.deepcopy(iterable)
    except RuntimeError:
        # Copying a file system of fsspec in a new thread changes fsspec's cache of file
        # systems. Hugging Face's datasets refer to this cache, so that it changes while
        # it is being copied.
        return copy.deepcopy(iterable)


def _set_epoch(iterable: Any, epoch: int) -> None:
    if callable(set_epoch := getattr(iterable, "set_epoch", None)):
        set_epoch(epoch)


def _parameters_of(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    try:
        return inspect.signature(function).parameters
    except ValueError:  # Some built-in functions have no signature.
        return {}


def _check_parameters(function: Callable[..., Any]) -> None:
    """Raise TypeError if a function needs arguments other than those of a share."""
    required = [
        name
        for name, parameter in _parameters_of(function).items()
        if parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    ]
    if takes_share(function):
        required = [name for name in required if name not in SHARE_PARAMETERS]
    if required:
        raise TypeError(
            f"{_EXPECTED}. It is called without arguments, or with shard_index and"
            f" shard_count if it has both parameters, but {function!r} needs"
            f" {', '.join(required)}. Pass functools.partial(function,"
            f" {required[0]}=...)."
        )
