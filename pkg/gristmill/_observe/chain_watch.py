"""Times some of the calls of a chain's last iterator, and measures some blocks."""

from __future__ import annotations

import weakref
from typing import Any

from gristmill import monitoring
from gristmill._dataset.model.iterator import DatasetIterator
from gristmill._dataset.nodes.to_iter import feeds_of
from gristmill._observe.kinds import is_long
from gristmill._observe.sampling import Sampling, samplings_of
from gristmill._observe.watch import Watch


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
        iterator, monitoring.record_next, dataset, samplings_of=samplings_of
    )
