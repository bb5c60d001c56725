"""The `repr` and the reports of a `DataLoader`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic

from gristmill._base.latest_iterators import metrics_of
from gristmill._base.object_repr import call_html, value_text
from gristmill._base.types import T
from gristmill.loader._iterator import LoaderTrial

if TYPE_CHECKING:
    from gristmill._base.report import Report


class Reportable(Generic[T]):
    """A base of `DataLoader` with its `repr` and its reports."""

    def __repr__(self) -> str:
        texts = []
        for name, value in _arguments(self).items():
            text = value if isinstance(value, str) else f"[{', '.join(value)}]"
            texts.append(f"{name}={text}")
        return f"{type(self).__name__}({', '.join(texts)})"

    def _repr_html_(self) -> str:
        return call_html(self, _arguments(self))

    def report(
        self,
        seconds: float = 3.0,
        consume: Callable[[T], Any] | None = None,
        verify: bool = False,
        trace: bool = False,
    ) -> Report:
        """Iterate for a short time, and return a report of what limits the speed.

        The first output does not count, because workers start with it.

        Args:
            seconds: The approximate time, in s.  It ends earlier if the data ends.
            consume: Called with each output, like the loop that will use them; by
                default outputs are dropped.
            verify: Whether to try changes, which takes up to five times `seconds`
                more: see `DataLoaderIterator.report`.
            trace: Whether to record when each stage runs, for `Report.trace`.  That
                takes 5 to 20 us for each call of a stage.

        Returns:
            A `Report`.  With `verify`, its `checks` are the changes that were tried.

        Raises:
            ValueError: `seconds` is not positive.

        Example:
            >>> loader = gristmill.load(range(1000), batch_size=10)
            >>> loader.report(seconds=0.1).outputs > 0
            True
        """
        from gristmill._observe.reporting import report_of_loader

        return report_of_loader(self, seconds, consume, verify, trace)

    def metrics(self) -> dict[str, float]:
        """Return the numbers of the latest iterator, to log while you train.

        See `Report.metrics` for the names.

        Returns:
            The numbers by name; empty if no iterator of this loader exists any more.

        Example:
            >>> loader = gristmill.load(range(1000), batch_size=10)
            >>> iterator = iter(loader)
            >>> batch = next(iterator)
            >>> loader.metrics()["data/outputs_per_s"] > 0
            True
        """
        return metrics_of(self)

    def _trial(self) -> LoaderTrial:
        trial: Any = self
        return LoaderTrial(trial, None)


def _arguments(loader: Any) -> dict[str, str | list[str]]:
    """Return the text of each argument; leave out some with default values.

    The value is a list for `operations`: the text of each.
    """
    # Datasets are slow to import, and loaders do not need them.
    from gristmill._dataset.model.names import transform_name

    source = loader._data_source
    if type(source) is dict:  # Show the table that was made of it.
        source = loader._program.source
    texts: dict[str, str | list[str]] = {
        "data_source": value_text(source),
        "sampler": value_text(loader._sampler),
        "operations": list(map(transform_name, loader._operations)),
        "worker_count": str(loader._multiprocessing_options.num_workers),
    }
    if loader._remote.backend is not None:
        texts["workers"] = repr(loader._remote.backend)
    if loader._explicit_streams is not None:
        texts["streams"] = str(loader._explicit_streams)
    if loader._error_policy.on_error != "raise":
        texts["on_error"] = repr(loader._error_policy.on_error)
    return texts
