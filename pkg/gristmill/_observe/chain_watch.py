"""Times some calls of a chain's last iterator, and measures some blocks.

A `Stage`, whose ``__next__`` is in C, counts the calls up to the next timed one.  The
check takes two instructions a call.

The other iterators, whose ``__next__`` is Python code of Gristmill or of the user, have
another class while their calls are timed.  Python takes ``__next__`` from the class of
an object.  So to time the calls of one object, either all objects of the class check
something in each call, or the object gets another class.  Only the latter costs the
inner iterators of a chain nothing.  A common base class in C that counts is no way out:
CPython finds the attributes of its objects so much later that packing takes 23 % more
instructions.
"""

from __future__ import annotations

import functools
import sys
import weakref
from typing import Any

from gristmill import monitoring
from gristmill._dataset.model.iterator import DatasetIterator
from gristmill._dataset.nodes.to_iter import feeds_of
from gristmill._engine.tracebacks import cut
from gristmill._hot.iterators import Stage
from gristmill._observe.kinds import is_long
from gristmill._observe.sampling import Sampling, samplings_of
from gristmill._observe.watch import NEVER, Watch


def watch(iterator: DatasetIterator[Any], dataset: Any) -> None:
    """Have some calls of a chain's last iterator timed, and blocks measured."""
    reference = weakref.ref(iterator)

    def wake(fails: bool) -> None:
        found = reference()
        # Unless some calls were timed not long ago.
        if found is not None and (fails or found._watch.is_due()):
            found._watch.start(found)

    for feed in feeds_of(iterator):
        if not is_long(feed.dataset):
            feed.sampling = Sampling(feed.dataset, wake)
    iterator._watch = Watch(
        iterator,
        monitoring.record_next,
        dataset,
        samplings_of=samplings_of,
        schedule=_count_down
        if isinstance(iterator, Stage)
        else functools.partial(_change_class, type(iterator)),
    )


def _count_down(iterator: Stage, calls: int) -> None:
    """Have the last one of the next calls timed."""
    # Keras looks for our code on the stack, where code in C does not appear.
    seen = calls == NEVER and "keras" in sys.modules
    iterator._timed_in = 1 if seen else calls


def _change_class(own: Any, iterator: Any, calls: int) -> None:
    """Give an iterator the class whose calls are timed, or its own class again."""
    kind = own if calls == NEVER else _timed_class(own)
    if type(iterator) is not kind:
        iterator.__class__ = kind
        # CPython 3.11 and 3.12 find an attribute 12 ns later after this, unless the
        # dict is new.
        iterator.__dict__ = dict(iterator.__dict__)


@functools.cache
def _timed_class(own: Any) -> Any:
    """Return a subclass of a class of iterators whose calls go through the watch."""
    advance = own.__next__

    def __next__(self: Any) -> Any:
        try:
            return self._watch.call(self, advance)
        except BaseException as error:
            cut(error)
            raise

    names = {
        "__next__": __next__,
        "__slots__": (),
        "__module__": own.__module__,
        "__qualname__": own.__qualname__,
        "__doc__": own.__doc__,
    }
    return type(own)(own.__name__, (own,), names)
