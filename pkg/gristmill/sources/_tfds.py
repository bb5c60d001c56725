"""Implementation of sources.TFDSDataSource."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, SupportsIndex

from gristmill._base.closeable import Closeable
from gristmill._base.object_repr import FileSource, call_text
from gristmill.sources._array_record import ArrayRecordDataSource
from gristmill.sources._record_files import find_file
from gristmill.sources._remote import RemoteFile
from gristmill.sources._remote_options import RemoteOptions
from gristmill.sources._tfds_features import DecodeTFDS, leaves_of
from gristmill.transforms import Map

__all__ = ["TFDSDataSource"]

# TFDS's names of files, if `dataset_info.json` has no template.
TEMPLATE = "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}"
SPLIT = re.compile(r"(?P<name>[^\[\]+]+)(?:\[(?P<first>[^:]*):(?P<last>[^:]*)\])?")
BOUND = re.compile(r"(-?\d+)(%?)")


class TFDSDataSource(FileSource, Closeable):
    """Serve the elements of a TFDS dataset, without TFDS or TensorFlow.

    Args:
        directory: The folder of the dataset's version, prepared as ``array_record``,
            which has ``dataset_info.json`` and ``features.json``. It may be a URL that
            fsspec supports.
        split: Name of a split, or a part of one: ``"train[100:200]"``,
            ``"train[:80%]"``.
        features: Names of the outermost features to read; None reads all.
        storage_options: Arguments of the URL's file system, such as credentials.
        remote_options: How remote files are read. None for the defaults.

    Element ``i`` is the dict that ``tfds.data_source`` returns: Python's numbers and
    ``bytes`` for scalars, arrays for tensors and images, lists for sequences.  These
    features are supported: tensors (also encoded as bytes or zlib), scalars, text,
    class labels, bounding boxes, translations, audio, and images and videos of uint8,
    or of float32 with one channel; dicts of these, sequences of these or of such dicts,
    and sequences of sequences of scalars.  A video is a list of its frames.  Audio that
    TFDS decodes lazily is the file's ``bytes``, as in ``tfds.data_source``.

    A nested dataset (``tfds.features.Dataset``, such as the steps of an episode) is a
    sequence of its elements.  Each element is decoded when it is read.

    Images and videos of uint16 are decoded by TFDS, if TFDS and OpenCV are installed.

    Raises:
        FileNotFoundError: The directory does not contain a prepared dataset.
        ValueError: The dataset has another file format, the split or a feature does not
            exist, the split has no records, a feature cannot be decoded, or there are
            storage_options without a URL.
        RemoteError: A remote file cannot be read.
        ImportError: fsspec, or a package that it needs for a URL, is not installed.
        CorruptRecord: A record is damaged. Raised when it is read.

    Example:
        >>> source = TFDSDataSource("mnist/3.0.1", "train[:90%]")  # doctest: +SKIP
        >>> source[0]["image"].shape, source[0]["label"]  # doctest: +SKIP
        ((28, 28, 1), 4)
    """

    __module__ = __name__.rpartition(".")[0]  # The name in pickles.

    def __init__(
        self,
        directory: str | os.PathLike[str],
        split: str = "train",
        features: Sequence[str] | None = None,
        *,
        storage_options: Mapping[str, Any] | None = None,
        remote_options: RemoteOptions | None = None,
    ) -> None:
        self._directory = os.fspath(directory).rstrip("/")
        remote = storage_options, remote_options
        info = _read(self._directory, "dataset_info.json", *remote)
        file_format = info.get("fileFormat", "tfrecord")
        if file_format != "array_record":
            raise ValueError(
                f"{self._directory}: expected files of format 'array_record', which has"
                f" random access, found {file_format!r}. Prepare the dataset with"
                " file_format='array_record'."
            )
        outermost = _read(self._directory, "features.json", *remote)
        self._name = f"{info['name']}:{info['version']}"
        self._split = split
        features_dict = _choose_features(outermost, features, self._directory)
        self._features = list(features_dict["featuresDict"]["features"])
        self._decode = DecodeTFDS(list(leaves_of(features_dict)))
        self._records = ArrayRecordDataSource(
            _parts(self._directory, info, split),
            storage_options=storage_options,
            remote_options=remote_options,
        )

    @property
    def records(self) -> ArrayRecordDataSource:
        """The data source of the undecoded records."""
        return self._records

    @property
    def decode(self) -> Map:
        """The transform that decodes a record to its element.

        A loader with ``records`` as its source and this as its first operation returns
        the same elements, and reads the files ahead of need.
        """
        return self._decode

    def __len__(self) -> int:
        return len(self._records)

    def __getitem__(self, record_key: SupportsIndex) -> dict[str, Any]:
        return self._decode.map(self._records[record_key])

    def __getitems__(self, record_keys: Sequence[SupportsIndex]) -> list[Any]:
        records = self._records.__getitems__(record_keys)
        return [self._decode.map(record) for record in records]

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return map(self._decode.map, self._records)

    def close(self) -> None:
        """Close the files.  Reading opens them again."""
        self._records.close()

    def _text_with_paths(self) -> str:
        paths = self._records.paths
        return call_text(self, name=self._name, split=self._split, paths=paths)

    def __repr__(self) -> str:
        return (
            f"TFDSDataSource(name={self._name}, split={self._split!r},"
            f" records={len(self)}, features={self._features})"
        )


def _read(
    directory: str,
    name: str,
    storage_options: Mapping[str, Any] | None,
    remote_options: RemoteOptions | None,
) -> Any:
    """Return the content of a JSON file of the dataset."""
    path = f"{directory}/{name}"
    try:
        file = find_file(path, "pread", storage_options, remote_options)
        if isinstance(file, RemoteFile):
            return json.loads(file.read_range(0, file.size))
        with open(file, encoding="utf-8") as text:
            return json.load(text)
    except FileNotFoundError:
        raise FileNotFoundError(
            f"directory must have the file {name}, found none in {directory}. Pass the"
            " folder of a prepared version, such as ~/tensorflow_datasets/mnist/3.0.1."
        ) from None


def _choose_features(
    outermost: Mapping[str, Any], chosen: Sequence[str] | None, directory: str
) -> dict[str, Any]:
    """Return the dict of the features to read."""
    if "featuresDict" not in outermost:
        raise ValueError(
            f"{directory}: expected elements that are dicts of features, found"
            f" {outermost.get('pythonClassName', 'another type')}. Use"
            " tfds.data_source(...) as data_source instead."
        )
    features = outermost["featuresDict"]["features"]
    if isinstance(chosen, str):
        raise TypeError(f"features must be a list of names, got the str {chosen!r}.")
    for name in chosen or ():
        if name not in features:
            raise ValueError(
                f"features must be features of {directory}, got {name!r}. It has"
                f" {', '.join(map(repr, features))}."
            )
    names = features if chosen is None else chosen
    if not names:
        raise ValueError(
            f"{directory}: expected at least one feature to read, found none."
        )
    return {"featuresDict": {"features": {name: features[name] for name in names}}}


def _parts(directory: str, info: Mapping[str, Any], split: str) -> list[str]:
    """Return the part of each file that is in a split, as ``"path[start:end]"``."""
    match = SPLIT.fullmatch(split)
    splits = {entry["name"]: entry for entry in info["splits"]}
    if match is None or match["name"] not in splits:
        raise ValueError(
            f"split must be one of {', '.join(splits)}, or a part of one such as"
            f" 'train[10:20]' or 'train[:50%]', got {split!r}, for {directory}."
        )
    name = match["name"]
    # A split without records is stored without lengths.
    lengths = [int(length) for length in splits[name].get("shardLengths", ())]
    total = sum(lengths)
    split_start = _bound(split, match["first"], total, default=0)
    split_end = _bound(split, match["last"], total, default=total)
    bounds = [bound for bound in (match["first"], match["last"]) if bound]
    if len({bound.strip().endswith("%") for bound in bounds}) > 1:
        raise ValueError(
            f"split must have two bounds in records or two in percents, got {split!r}."
        )
    if split_end <= split_start:
        raise ValueError(
            f"split must have records, got {split!r}: {name!r} has {total}."
        )
    template = splits[name].get("filepathTemplate") or TEMPLATE
    parts, shard_start = [], 0
    for shard, length in enumerate(lengths):
        skip, end = (
            max(split_start - shard_start, 0),
            min(split_end - shard_start, length),
        )
        if skip < end:
            file = template.format(
                DATASET=info["name"],
                SPLIT=name,
                FILEFORMAT="array_record",
                SHARD_X_OF_Y=f"{shard:05d}-of-{len(lengths):05d}",
                SHARD_INDEX=f"{shard:05d}",
                NUM_SHARDS=f"{len(lengths):05d}",
            )
            parts.append(f"{directory}/{file}[{skip}:{end}]")
        shard_start += length
    return parts


def _bound(split: str, text: str | None, total: int, default: int) -> int:
    """Return a bound of a part, in records.

    Percents are rounded to the nearest record, as in TFDS.  A negative bound counts
    from the end.  `default` is the bound if `text` is empty; `split` is for errors.
    """
    if not text:
        return default
    match = BOUND.fullmatch(text.strip())
    number = int(match[1]) if match else 0
    limit = 100 if match and match[2] else total
    if match is None or abs(number) > limit:
        raise ValueError(
            f"split must have bounds of up to {total} records, or of up to 100%, got"
            f" {text!r} in {split!r}."
        )
    if match[2]:
        number = round(number * total / 100)
    return number + total if number < 0 else number
