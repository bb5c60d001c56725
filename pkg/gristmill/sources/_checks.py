"""Checks of data sources: reject unreadable objects, and suggest a reader."""

from __future__ import annotations

import collections.abc
import os
import re
from typing import Any

from gristmill._base.argument_checks import kind

__all__ = ["check_numbered", "check_readable", "length_of"]

NEEDS = (
    "A data source needs __len__() and __getitem__(index): a list, an array, a dict of"
    " arrays, or an object with both methods."
)
IN_ORDER = (
    " It can only be read in order. Pass it, or a function that returns it, to"
    " IterDataset.from_iterable(...), which returns a dataset with batch(), map() etc."
)
# The source to suggest for a file, by its extension, which may be followed by a
# compression, a shard number or a pattern.
READERS = {
    "array_record": "sources.ArrayRecordDataSource({path!r})",
    "arrayrecord": "sources.ArrayRecordDataSource({path!r})",
    "tfrecord": "sources.TFRecordDataSource({path!r})",
    "tfrecords": "sources.TFRecordDataSource({path!r})",
    "tar": "sources.TarDataSource({path!r})",
    "bag": "sources.BagDataSource({path!r})",
    "bagz": "sources.BagDataSource({path!r})",
    "parquet": "sources.ParquetDataSource({path!r})",
    "pq": "sources.ParquetDataSource({path!r})",
    "npy": "numpy.load({path!r}, mmap_mode='r')",
    "npz": "dict(numpy.load({path!r}))",
    "arrow": "datasets.Dataset.from_file({path!r})",
    "csv": "pyarrow.csv.read_csv({path!r})",
    "json": "pyarrow.json.read_json({path!r})",
    "jsonl": "pyarrow.json.read_json({path!r})",
    "txt": "open({path!r}).readlines()",
}
SUFFIX = re.compile(rf"\.({'|'.join(READERS)})(\.(gz|gzip|zlib|zst))?([-@*].*)?$")
MAX_PATH_LENGTH = 4096  # A longer str is not a path.


def check_readable(source: Any) -> None:
    """Raise TypeError if a source has no records by number, and suggest a reader."""
    _reject_path(source)
    if isinstance(source, type):
        raise TypeError(
            "data_source must be an instance of a class, got the class"
            f" {source.__name__} itself. Pass {source.__name__}(...)."
        )
    if _is_iterable_dataset(source):
        raise TypeError(
            "data_source must have records by number, got a"
            f" {kind(source)}, which has none.{IN_ORDER}"
        )
    if not hasattr(type(source), "__getitem__"):
        names = ("__len__", "__getitem__")
        missing = [name for name in names if not hasattr(type(source), name)]
        raise TypeError(
            f"data_source must have records by number, got a {kind(source)}, which has"
            f" no {' and no '.join(missing)}. {NEEDS}{_in_order(source)}"
        )


def check_numbered(source: Any) -> None:
    """Raise TypeError if a source has records by name, such as a dict of lists."""
    if hasattr(source, "iloc") and hasattr(source, "columns"):
        raise TypeError(
            f"data_source must be indexed by row, got a {kind(source)}, which is"
            " indexed by column. Pass {name: frame[name].to_numpy() for name in frame}."
        )
    # A dict may have a record 0.
    if not isinstance(source, dict) or hasattr(type(source), "__missing__"):
        return
    if not source or 0 in source:
        return
    names = ", ".join(repr(name) for name in list(source)[:3])
    value = next(iter(source.values()))
    advice = "Pass a list of its values, or one of them."
    if isinstance(value, (list, tuple)) or hasattr(value, "__array__"):
        advice = (
            "If its values are columns, pass"
            " {name: np.asarray(column) for name, column in source.items()}. If they"
            " are data sets, pass one of them, such as source[name]."
        )
    raise TypeError(
        f"data_source must have records by number, got a {kind(source)} of"
        f" {kind(value)} with the keys {names} and no record 0. {advice}"
    )


def length_of(source: Any) -> int:
    """Return the length of a readable source; raise TypeError if it has none."""
    try:
        return len(source)
    except TypeError as error:
        raise TypeError(
            f"data_source must have a length, got a {kind(source)} without one:"
            f" {error}. Define __len__(), or pass a sampler with num_records to the"
            " DataLoader."
        ) from error


def _reject_path(source: Any) -> None:
    if not isinstance(source, (str, os.PathLike)):
        return
    path = os.fspath(source)
    if not isinstance(path, str):
        return
    suffix = SUFFIX.search(path)
    is_path_like = len(path) < MAX_PATH_LENGTH and "\n" not in path and "\0" not in path
    exists = is_path_like and bool(path) and os.path.exists(path)
    if isinstance(source, str) and not (is_path_like and (suffix or exists)):
        return  # A text is a source of its characters.
    advice = f"Open it first. {NEEDS}"
    if suffix:
        advice = f"Pass {READERS[suffix[1]].format(path=path)}."
    elif exists and os.path.isdir(path):
        advice = (
            f"Pass sources.FolderDataSource({path!r}) for class folders of images,"
            f" sources.TFDSDataSource({path!r}) for a folder of TFDS, or a source of"
            " the files in it."
        )
    raise TypeError(f"data_source must have records, got the path {path!r}. {advice}")


def _is_iterable_dataset(source: Any) -> bool:
    """Return whether a source is an IterableDataset of torch or Hugging Face.

    Both inherit a ``__getitem__`` that does not return records.
    """
    classes = type(source).__mro__
    homes = (cls.__module__ for cls in classes if "__getitem__" in vars(cls))
    package = next(homes, "").partition(".")[0]
    is_named = any(cls.__name__ == "IterableDataset" for cls in classes)
    return is_named and package in ("torch", "datasets")


def _in_order(source: Any) -> str:
    """Return advice for something that can only be iterated over."""
    if not isinstance(source, collections.abc.Iterable):
        return ""
    if hasattr(source, "mp_prefetch"):
        return " It is a dataset already: use its methods, such as batch(batch_size)."
    return IN_ORDER
