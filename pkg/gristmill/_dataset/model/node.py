"""What datasets of both kinds are: nodes in a tree."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, ClassVar, Literal, Self, TypeVar

import numpy as np

from gristmill._base.checks import kind
from gristmill._dataset.model import observer
from gristmill._dataset.model.chain_text import chain_text
from gristmill._dataset.model.names import line_of, node_text
from gristmill._dataset.model.stats import Stats

S = TypeVar("S")
Made = TypeVar("Made", bound=Callable[..., Any])
# What a node does.  "read" gets elements from outside, "order" says which one comes
# when, "transform" runs somebody's function, "batch" groups or packs, "prefetch" works
# ahead with threads, and "transport" gets elements from worker processes.
Kind = Literal["read", "order", "transform", "batch", "prefetch", "transport"]
_BUILDERS: dict[str, Callable[..., Any]] = {}


def builds(*methods: str) -> Callable[[Made], Made]:
    """Register what methods of datasets call, such as ``"MapDataset.batch"``."""

    def register(made: Made) -> Made:
        _BUILDERS.update(dict.fromkeys(methods, made))
        return made

    return register


def build(method: str, *arguments: Any, **named: Any) -> Any:
    """Call what is registered for a method: the class of a node, mostly."""
    return _BUILDERS[method](*arguments, **named)


class Dataset:
    """A node in a tree of datasets; its parents are where its elements come from."""

    # What this does; None: "transform" where it has parents, else "read".
    _KIND: ClassVar[Kind | None] = None
    # What may drop elements that the parents have, in Grain's words; None: nothing.
    _SPARSE: ClassVar[str | None] = None
    # Of how many elements of the only parent each is made, one behind another, where
    # nothing but the parent's position says which are next; else None.
    _stride: int | None = None
    # How many elements should be made at once, where that is cheaper.
    _together: int = 1
    # Whether it gives its parent's elements, some of them, without looking at one.
    _AS_THEY_ARE: ClassVar[bool] = False
    # Whether a contiguous piece of a chain's sources is a piece of this node.
    _CUT_IN_PIECES: ClassVar[bool] = False
    # What changes from one epoch to the next: which element comes when, or what is
    # drawn for each; None: nothing.
    _random: Literal["order", "draws"] | None = None
    _seed_rng_seed: Any = None
    # Whether iterators over it may have no state; see `nodes/unsaved.py`.
    _may_lack_state: bool = False
    _parents: Sequence[Any] = ()
    # Arguments, kept as ``_name``, that are in the text of a node and its iterators.
    _SAID: ClassVar[tuple[str, ...]] = ()

    def __init__(self, parents: Dataset | Sequence[Dataset] = ()) -> None:
        super().__init__()
        if isinstance(parents, Dataset) or not isinstance(parents, Iterable):
            parents = (parents,)
        self._parents = tuple(parents)
        check_parents(self, self._parents, Dataset)

    @property
    def parents(self) -> Sequence[Any]:
        """The datasets that this one is made of."""
        return self._parents

    @property
    def _parent(self) -> Any:
        (parent,) = self._parents
        return parent

    @functools.cached_property
    def _default_seed(self) -> Any:
        """The seed of a random step that was given none; None without any above.

        Mixes the seeds of the nearest ancestors that have one, each with how far away
        it is, by `numpy.random.SeedSequence`.
        """
        found: list[int] = []
        level: list[tuple[Any, int]] = [(self, 0)]
        for node, depth in level:
            seed = getattr(node, "_seed_rng_seed", None)
            if seed is not None:
                found += (seed, depth)
            else:
                level += [(parent, depth + 1) for parent in node._parents]
        if not found:
            return None
        return np.random.SeedSequence(found).generate_state(1, dtype=np.uint32)[0]

    @property
    def _element_spec(self) -> Any:
        raise NotImplementedError(
            f"`element_spec` inference is not implemented for {type(self).__name__}"
        )

    @functools.cached_property
    def _stats(self) -> Stats:
        return Stats()

    def _in_epoch(self, epoch: int) -> Self:
        """A copy of this chain with the order and the random draws of an epoch."""
        parents = [parent._in_epoch(epoch) for parent in self._parents]
        made: Self = with_parents(self, parents)
        if callable(set_epoch := getattr(made, "set_epoch", None)):
            set_epoch(epoch)
        return made

    def _measure(self) -> None:
        """Find what follows from the parents, such as lengths; see `with_parents`."""

    def pipe(self, func: Callable[..., S], /, *args: Any, **kwargs: Any) -> S:
        """Return ``func(self, *args, **kwargs)``.

        Args:
            func: Takes a dataset first, such as a dataset's class.
            *args: Passed on.
            **kwargs: Passed on.
        """
        return func(self, *args, **kwargs)

    def _arguments_text(self) -> str:
        """What follows the class's name in the text of a node and of its iterators."""
        said = [f"{name}={getattr(self, '_' + name)}" for name in self._SAID]
        return f"({', '.join(said)})" if said else ""

    def _line(self) -> str:
        """The text of this node alone, in Grain's words."""
        return type(self).__name__ + self._arguments_text()

    def __str__(self) -> str:
        return chain_text(self)

    def __format__(self, spec: str) -> str:
        # In a message, a dataset is one line.
        return format(line_of(self), spec)

    def __repr__(self) -> str:
        return node_text(self)

    def _repr_html_(self) -> str | None:
        figure: str | None = observer.current().figure_of(self)
        return figure


class ParentSpec(Dataset):
    """A dataset whose elements look as its first parent's do."""

    @property
    def _element_spec(self) -> Any:
        return self._parents[0]._element_spec


def check_parents(dataset: Any, parents: Iterable[Any], wanted: type) -> None:
    """Refuse parents of a node that are no datasets, or of the other kind."""
    for parent in parents:
        if isinstance(parent, wanted):
            continue
        advice = "Make one of it with MapDataset.source(...)."
        if isinstance(parent, Dataset):
            advice = (
                "Use the node for an IterDataset, or put it before to_iter_dataset."
            )
        raise TypeError(
            f"{type(dataset).__name__} is made of datasets, of kind"
            f" {wanted.__name__}, got {kind(parent)}. {advice}"
        )


def listed(datasets: Any, name: str) -> list[Any]:
    """Several datasets as a list; one alone is refused."""
    if isinstance(datasets, (Dataset, str)) or not isinstance(datasets, Iterable):
        raise TypeError(
            f"{name} takes a sequence of datasets, got {kind(datasets)}. Put them in a"
            " list."
        )
    return list(datasets)


def is_ours(node: Any) -> bool:
    """Whether the class of a dataset or an iterator is Gristmill's."""
    return type(node).__module__.startswith("gristmill.")


def chain_of(dataset: Any) -> Iterator[Any]:
    """A dataset and all that it is made of, the nearest first."""
    nodes = [dataset]
    for node in nodes:
        yield node
        nodes += node._parents


def seed_in_epoch(seed: int, epoch: int) -> int:
    """Another seed for each epoch, in [0, 2**31)."""
    mixed = np.random.SeedSequence([seed, epoch]).generate_state(1, np.uint32)
    return int(mixed[0]) >> 1


def with_parents(dataset: Any, parents: Sequence[Any]) -> Any:
    """A copy of a dataset, made of other parents.

    Seeds stay what they were; what a built-in dataset knows of its parents is found
    again.
    """
    made = copy.copy(dataset)
    made._parents = tuple(parents)
    made.__dict__.pop("_plan", None)
    if isinstance(made, Dataset):
        made._measure()
    return made
