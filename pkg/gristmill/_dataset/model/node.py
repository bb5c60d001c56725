"""The base of both kinds of datasets: nodes in a tree."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, ClassVar, Literal, Self, TypeVar

import numpy as np

from gristmill._base.argument_checks import kind
from gristmill._dataset.model import observer
from gristmill._dataset.model.chain_text import chain_text
from gristmill._dataset.model.names import node_line, node_text
from gristmill._dataset.model.stats import Stats

S = TypeVar("S")
Builder = TypeVar("Builder", bound=Callable[..., Any])
# The kind of work of a node.  "read" nodes read elements from a source, "order" nodes
# select or reorder them, "transform" nodes call a user's function, "batch" nodes group
# or pack them, "prefetch" nodes work ahead in threads, and "transport" nodes receive
# elements from worker processes.
Kind = Literal["read", "order", "transform", "batch", "prefetch", "transport"]
# For each method, such as "MapDataset.batch", the function or class that it calls.
_BUILDERS: dict[str, Callable[..., Any]] = {}


def builds(*methods: str) -> Callable[[Builder], Builder]:
    """Register the function or class that methods call, e.g. ``"MapDataset.batch"``."""

    def register(builder: Builder) -> Builder:
        _BUILDERS.update(dict.fromkeys(methods, builder))
        return builder

    return register


def build(method: str, /, *arguments: Any, **named: Any) -> Any:
    """Call the function registered for a method, usually the class of a node."""
    return _BUILDERS[method](*arguments, **named)


class Dataset:
    """A node in a tree of datasets. Its elements are computed from its parents'."""

    # The kind of node; None: "transform" if it has parents, else "read".
    _KIND: ClassVar[Kind | None] = None
    # The operation that may drop elements, in Grain's words; None: none are dropped.
    _SPARSE: ClassVar[str | None] = None
    # The number of consecutive parent elements in each element, if the parent's
    # position alone determines them; else None.
    _elements_per_output: int | None = None
    # The number of elements to compute at once, if that is cheaper.
    _preferred_block: int = 1
    # Whether elements are an unchanged subset of the parent's, chosen without reading
    # them.
    _IS_SELECTION: ClassVar[bool] = False
    # Whether this node can be cut into contiguous pieces, like a source.
    _SLICEABLE: ClassVar[bool] = False
    # True if this dataset's iterator is always part of another dataset's iterator.
    _IS_INNER: ClassVar[bool] = False
    # What changes from epoch to epoch: the order of elements, or their random draws;
    # None: nothing.
    _random: Literal["order", "draws"] | None = None
    # The seed that this node sets for random steps after it; None: it sets no seed.
    _seed_rng_seed: Any = None
    # Whether iterators over this node may lack a state; see `nodes/missing_states.py`.
    _may_lack_state: bool = False
    _parents: Sequence[Any] = ()
    # Arguments, stored as ``_name``, to show in the text of a node and its iterators.
    _REPR_ARGS: ClassVar[tuple[str, ...]] = ()

    def __init__(self, parents: Dataset | Sequence[Dataset] = ()) -> None:
        super().__init__()
        if isinstance(parents, Dataset) or not isinstance(parents, Iterable):
            parents = (parents,)
        self._parents = tuple(parents)
        check_parents(self, self._parents, Dataset)

    @property
    def parents(self) -> Sequence[Any]:
        """The datasets that this one reads."""
        return self._parents

    @property
    def _parent(self) -> Any:
        (parent,) = self._parents
        return parent

    @functools.cached_property
    def _default_seed(self) -> Any:
        """The default seed of a random step, or None if no ancestor has a seed.

        `numpy.random.SeedSequence` mixes the seeds of the nearest ancestors that have
        one, each with its distance.
        """
        seeds: list[int] = []
        level: list[tuple[Any, int]] = [(self, 0)]
        for node, depth in level:
            seed = getattr(node, "_seed_rng_seed", None)
            if seed is not None:
                seeds += (seed, depth)
            else:
                level += [(parent, depth + 1) for parent in node._parents]
        if not seeds:
            return None
        return np.random.SeedSequence(seeds).generate_state(1, dtype=np.uint32)[0]

    @property
    def _element_spec(self) -> Any:
        raise NotImplementedError(
            f"`element_spec` inference is not implemented for {type(self).__name__}"
        )

    @functools.cached_property
    def _stats(self) -> Stats:
        return Stats()

    def _in_epoch(self, epoch: int) -> Self:
        """Return a copy of this chain with the order and random draws of an epoch."""
        parents = [parent._in_epoch(epoch) for parent in self._parents]
        copied: Self = with_parents(self, parents)
        if callable(set_epoch := getattr(copied, "set_epoch", None)):
            set_epoch(epoch)
        return copied

    def _update_from_parents(self) -> None:
        """Compute properties of the parents, such as lengths; see `with_parents`."""

    def pipe(self, func: Callable[..., S], /, *args: Any, **kwargs: Any) -> S:
        """Return ``func(self, *args, **kwargs)``.

        Args:
            func: A function whose first argument is a dataset, or a dataset's class.
            *args: Other arguments of `func`.
            **kwargs: Keyword arguments of `func`.

        Returns:
            The result of `func`.
        """
        return func(self, *args, **kwargs)

    def _arguments_text(self) -> str:
        """Return the text after the class name, for a node and its iterators."""
        arguments = [f"{name}={getattr(self, '_' + name)}" for name in self._REPR_ARGS]
        return f"({', '.join(arguments)})" if arguments else ""

    def _node_line(self) -> str:
        """Return the text of this node alone, in Grain's words."""
        return type(self).__name__ + self._arguments_text()

    def __str__(self) -> str:
        return chain_text(self)

    def __format__(self, spec: str) -> str:
        # Messages show a dataset as one line.
        return format(node_line(self), spec)

    def __repr__(self) -> str:
        return node_text(self)

    def _repr_html_(self) -> str | None:
        figure: str | None = observer.get_observer().figure_of(self)
        return figure


class ParentSpec(Dataset):
    """A dataset whose elements have the spec of its first parent's."""

    @property
    def _element_spec(self) -> Any:
        return self._parents[0]._element_spec


def check_parents(dataset: Any, parents: Iterable[Any], expected: type) -> None:
    """Raise TypeError if parents are not datasets of the wanted kind."""
    for parent in parents:
        if isinstance(parent, expected):
            continue
        advice = "Convert it with MapDataset.source(...)."
        if isinstance(parent, Dataset):
            advice = "Use the node for IterDatasets, or put it before to_iter_dataset."
        raise TypeError(
            f"Parents of {type(dataset).__name__} must be of type"
            f" {expected.__name__}, got {kind(parent)}. {advice}"
        )


def as_dataset_list(datasets: Any, name: str) -> list[Any]:
    """Return several datasets as a list. Raises TypeError for a single one."""
    if isinstance(datasets, (Dataset, str)) or not isinstance(datasets, Iterable):
        raise TypeError(
            f"{name} needs a sequence of datasets, got {kind(datasets)}. Put them in a"
            " list."
        )
    return list(datasets)


def is_ours(node: Any) -> bool:
    """Return whether the class of a dataset or an iterator is Gristmill's."""
    return type(node).__module__.startswith("gristmill.")


def chain_of(dataset: Any) -> Iterator[Any]:
    """Yield a dataset and all of its ancestors, the nearest first."""
    nodes = [dataset]
    for node in nodes:
        yield node
        nodes += node._parents


def seed_in_epoch(seed: int, epoch: int) -> int:
    """Return a different seed for each epoch, in [0, 2**31)."""
    mixed = np.random.SeedSequence([seed, epoch]).generate_state(1, np.uint32)
    return int(mixed[0]) >> 1


def with_parents(dataset: Any, parents: Sequence[Any]) -> Any:
    """Return a copy of a dataset with other parents.

    Seeds do not change.  A built-in dataset computes properties of its parents again.
    """
    copied = copy.copy(dataset)
    copied._parents = tuple(parents)
    copied.__dict__.pop("_plan", None)  # A cached property that has the old parents.
    if isinstance(copied, Dataset):
        copied._update_from_parents()
    return copied
