"""Times some calls of a chain's last iterator, and measures some blocks.

If ``__next__`` is in C, the iterator is a `TimedIterator`, and checks in each call
whether it is timed, which takes two instructions.

Other iterators have another class while their calls are timed, because Python takes
``__next__`` from the class.  A check in Python would slow down all iterators inside of
chains.  So would a base class in C that checks: CPython then takes longer to find
attributes, and packing a batch takes 23 % more instructions.
"""

from __future__ import annotations

import functools
import sys
import weakref
from collections.abc import Iterator
from typing import Any

from gristmill import monitoring
from gristmill._dataset.model.iterator import DatasetIterator
from gristmill._dataset.nodes.missing_states import similar_class
from gristmill._dataset.nodes.to_iter import index_iterators_of
from gristmill._engine.tracebacks import cut_own_frames
from gristmill._hot.iterators import TimedIterator
from gristmill._observe.kinds import is_long
from gristmill._observe.sampling import Sampling, samplings_of
from gristmill._observe.watch import Watch


class ChainWatch(Watch):
    """Times calls of a chain's last iterator.

    See `Watch` for the threads that call the methods.

    Attributes:
        dataset: The last dataset of the chain.
    """

    def __init__(self, iterator: DatasetIterator[Any], dataset: Any) -> None:
        self.dataset = dataset
        self._own_class = type(iterator)
        super().__init__(iterator, monitoring.record_next)
        if type(iterator) is not self._own_class:
            _renew_dict(iterator)

    def _samplings_of(self, iterator: Any) -> Iterator[tuple[Any, Any]]:
        return samplings_of(iterator)

    def _set_timing(self, iterator: Any, on: bool) -> None:
        if isinstance(iterator, TimedIterator):
            # Keras looks for Gristmill's frames on the stack.  Code in C has none, so
            # with Keras, calls go through `Watch.call` between stretches, too.
            iterator._timing = on or "keras" in sys.modules
            return
        cls = _timed_class(self._own_class) if on else self._own_class
        if type(iterator) is not cls:
            iterator.__class__ = cls
            # Another thread may begin a stretch while this iterator's thread sets
            # attributes, so do not renew the dict then: that would lose them.
            if not on:
                _renew_dict(iterator)


def _renew_dict(iterator: Any) -> None:
    """Undo the slowdown of an assignment to `iterator.__class__`.

    CPython 3.11 and 3.12 find an attribute 12 ns later after it, unless the dict is
    new.  Only the thread of the iterator may call this.
    """
    iterator.__dict__ = dict(iterator.__dict__)


@functools.cache
def _timed_class(iterator_class: Any) -> Any:
    """Return a subclass of an iterator class whose calls go through the watch."""
    advance = iterator_class.__next__

    def __next__(self: Any) -> Any:
        try:
            return self._watch.call(self, advance)
        except BaseException as error:
            cut_own_frames(error)
            raise

    return similar_class(iterator_class, __next__=__next__)


def watch_chain(iterator: DatasetIterator[Any], dataset: Any) -> None:
    """Have some calls of a chain's last iterator timed, and blocks measured."""
    reference = weakref.ref(iterator)

    # Called in the threads that read blocks.
    def begin_stretch(has_failed: bool) -> None:
        watched = reference()
        if watched is not None and (has_failed or watched._watch.is_due()):
            watched._watch.start(watched)

    for feed in index_iterators_of(iterator):
        if not is_long(feed.dataset):
            feed.meter = Sampling(feed.dataset, begin_stretch)
    iterator._watch = ChainWatch(iterator, dataset)
