"""The text of a `DataLoader`: the arguments that it was made with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gristmill._base.describing import call_text

if TYPE_CHECKING:
    from gristmill.loader import DataLoader


def text_of(loader: DataLoader[Any]) -> str:
    """Return a loader's ``repr``."""
    # Datasets, which no loader needs, take long to import.
    from gristmill._dataset.model.names import transform_name

    source = loader._data_source
    shown = {
        "data_source": loader._program.source if type(source) is dict else source,
        "sampler": loader._sampler,
    }
    operations = ", ".join(map(transform_name, loader._operations))
    workers = loader._multiprocessing_options.num_workers
    options = f"operations=[{operations}], worker_count={workers}"
    if loader._remote.place is not None:
        options += f", workers={loader._remote.place!r}"
    if loader._explicit_streams is not None:
        options += f", streams={loader._explicit_streams}"
    if loader._error_policy.on_error != "raise":
        options += f", on_error={loader._error_policy.on_error!r}"
    return f"{call_text(loader, **shown)[:-1]}, {options})"
