"""Measures the lengths of elements once, and keeps them in a file.

The file is a ``.npy`` file of int32, followed by a line of JSON that names the data.
`numpy.load` ignores the line.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from gristmill._base.object_repr import FileSource
from gristmill._base.types import Int64Array
from gristmill._dataset.model.blocks import block_of
from gristmill._dataset.model.map_dataset import MapDataset
from gristmill._dataset.model.node import builds, chain_of
from gristmill._dataset.model.token_count import token_counter
from gristmill._dataset.nodes.pack_layout import at_least
from gristmill.options import MultiprocessingOptions

# Elements that are measured again when a file is opened.
CHECKED_ELEMENTS = 16
BATCH = 256  # Lengths that a worker measures and sends at once.
_MAX_LENGTH = np.iinfo(np.int32).max
ADVICE = "Pass feature='field' to measure_lengths if they are in a field of a dict."


@builds("MapDataset.measure_lengths")
def measure_lengths(
    dataset: MapDataset[Any],
    path: str | os.PathLike[str],
    feature: str | None,
    num_workers: int,
) -> npt.NDArray[np.int32]:
    """See `MapDataset.measure_lengths`."""
    num_workers = at_least(0, num_workers, "num_workers")
    path = os.fspath(path)
    length_of = token_counter(feature, ADVICE)
    if not len(dataset):
        raise ValueError(
            f"{dataset} has no elements, so there is no length to measure."
        )
    identity = _identity(dataset, feature)
    if not os.path.exists(path):
        _measure(dataset, length_of, num_workers, path, identity)
        return _open(path, identity)
    lengths = _open(path, identity)
    sample = np.unique(
        np.linspace(0, len(lengths) - 1, CHECKED_ELEMENTS, dtype=np.int64)
    )
    _check_sample(dataset, length_of, lengths, sample, path)
    return lengths


def _measure(
    dataset: MapDataset[Any],
    length_of: Callable[[Any], int],
    num_workers: int,
    path: str,
    identity: dict[str, Any],
) -> None:
    """Write the file. It gets its name when it is complete."""
    batches = dataset.map(length_of).batch(BATCH).to_iter_dataset()
    if num_workers:
        options = MultiprocessingOptions(num_workers=num_workers)
        batches = batches.mp_prefetch(options, streams=1)
    partial = f"{path}.{os.getpid()}.partial"
    try:
        with open(partial, "wb") as file:
            np.lib.format.write_array_header_1_0(
                file,
                {"descr": "<i4", "fortran_order": False, "shape": (len(dataset),)},
            )
            iterator = iter(batches)
            try:
                for lengths in iterator:
                    if lengths.max() > _MAX_LENGTH:
                        raise ValueError(
                            f"An element must have at most {_MAX_LENGTH} tokens, got"
                            f" {lengths.max()}."
                        )
                    file.write(lengths.astype("<i4").tobytes())
            finally:
                iterator.close()
            file.write(json.dumps(identity).encode() + b"\n")
        os.replace(partial, path)
    finally:
        if os.path.exists(partial):
            os.remove(partial)


def _open(path: str, expected: dict[str, Any]) -> npt.NDArray[np.int32]:
    """Map the lengths in a file.

    Raises:
        ValueError: The file is damaged, or was made from other data.
    """
    try:
        lengths: npt.NDArray[np.int32] = np.load(path, mmap_mode="r")
        with open(path, "rb") as file:
            file.seek(lengths.offset + lengths.nbytes)  # type: ignore[attr-defined]
            found = json.loads(file.read())
        if lengths.dtype != np.int32 or lengths.ndim != 1:
            raise ValueError(f"it has {lengths.dtype} of shape {lengths.shape}")
    except (ValueError, EOFError, AttributeError) as error:
        raise ValueError(
            f"{path} must be a file that measure_lengths wrote, but cannot be read:"
            f" {error}. Delete the file to measure again."
        ) from error
    if found != expected:
        raise ValueError(
            f"{path} has the lengths of other data: expected {expected}, found {found}."
            " Delete the file to measure again, or pass another path."
        )
    return lengths


def _check_sample(
    dataset: MapDataset[Any],
    length_of: Callable[[Any], int],
    lengths: npt.NDArray[np.int32],
    indices: Int64Array,
    path: str,
) -> None:
    """Raise ValueError if the length of a sampled element has changed."""
    for index, element in zip(
        indices.tolist(), block_of(dataset, indices), strict=True
    ):
        found = length_of(element)
        if found != lengths[index]:
            raise ValueError(
                f"{path} has the lengths of other data: element {index} has"
                f" {found} tokens, and {lengths[index]} in the file. Delete the file"
                " to measure again, or pass another path."
            )


def _identity(dataset: MapDataset[Any], feature: str | None) -> dict[str, Any]:
    """Return what a file must have been made from, without lines of code."""
    nodes = [
        re.sub(r" @ [^ )]*| at 0x\w+", "", f"{each}") for each in chain_of(dataset)
    ]
    sources = (getattr(each, "_source", None) for each in chain_of(dataset))
    files = [repr(each) for each in sources if isinstance(each, FileSource)]
    return {
        "elements": len(dataset),
        "feature": feature,
        "nodes": nodes[::-1],
        "files": files,
    }
