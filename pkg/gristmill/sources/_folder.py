"""Implementation of sources.FolderDataSource."""

from __future__ import annotations

import bisect
import functools
import itertools
import operator
import os
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, SupportsIndex, TypedDict

import numpy as np

from gristmill._base.argument_checks import check_callable
from gristmill._base.types import Int64Array
from gristmill.sources._urls import is_local, local_path

__all__ = ["FolderDataSource"]

EXTENSIONS = (
    *(".jpg", ".jpeg", ".png", ".ppm", ".bmp"),
    *(".pgm", ".tif", ".tiff", ".webp"),
)


# The folder's path in the `repr` of a source, which may be part of a longer text.
_FOLDER_PATH = re.compile(
    r"(?<=FolderDataSource\()"
    r"""(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"), """
    r"(?=hash_of_names)"
)


class Picture(TypedDict):
    """A record: the bytes of a file, and the number of its class."""

    image: bytes
    label: int


class FolderDataSource:
    """Serve the files of class folders: ``path/cat/1.jpg`` is a record of class cat.

    Args:
        path: A local folder with one folder for each class.
        extensions: The extensions of files that are records, in any case. By default
            the image extensions of torchvision's ImageFolder.
        is_valid_file: Returns whether the file at a path is a record. Replaces
            `extensions`. Only the constructor calls it.
        allow_empty: Whether there may be classes without a file.

    Record ``i`` is ``{"image": bytes, "label": int}``: the content of the file, for
    ``images.DecodeImage(key="image")``, and the number of its class. Classes, records
    and their order are those of torchvision's ``ImageFolder``: classes are sorted by
    name. Files may be at any depth below the class's folder, including linked folders,
    and are sorted by folder, then by name. The constructor lists the folders once;
    pickles contain the list, about 20 bytes and a name for each file.

    Attributes:
        classes: The names of the C classes, sorted.
        class_to_idx: The number of each class, in [0, C), by name.

    Raises:
        ValueError: `path` is a URL, both `extensions` and `is_valid_file` are given, or
            a link leads to a folder above it.
        FileNotFoundError: The folder does not exist or has no classes, or a class has
            no file and `allow_empty` is False.
        OSError: A folder cannot be listed.

    Example:
        >>> FolderDataSource("/none/such")
        Traceback (most recent call last):
            ...
        FileNotFoundError: path must be an existing folder, got /none/such.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        extensions: str | Sequence[str] | None = None,
        is_valid_file: Callable[[str], bool] | None = None,
        allow_empty: bool = False,
    ) -> None:
        is_record, description = _predicate_of(extensions, is_valid_file)
        self._path = _check_path(path)
        self.classes = _classes(self._path)
        self.class_to_idx = {name: i for i, name in enumerate(self.classes)}
        names: list[bytes] = []
        counts = []
        for name in self.classes:
            first = len(names)
            names.extend(_files(os.path.join(self._path, name), is_record))
            counts.append(len(names) - first)
        empty = [n for n, count in zip(self.classes, counts, strict=True) if not count]
        if empty and not allow_empty:
            raise FileNotFoundError(
                f"{self._path}: each class must have a file {description}, found none"
                f" for the classes {', '.join(empty)}. Pass allow_empty=True to accept"
                " that."
            )
        # One string instead of a million: it is sent to workers and shared.
        self._names = b"".join(names)
        # The offset in `_names` at which each name ends, int64 of shape (N,).
        self._ends: Int64Array = np.cumsum(np.fromiter(map(len, names), np.int64))
        # The number of records up to the end of each class.
        self._class_ends = list(itertools.accumulate(counts))

    @property
    def path(self) -> str:
        """The path of the folder."""
        return self._path

    @functools.cached_property
    def targets(self) -> list[int]:
        """The class of each record, of length N."""
        counts = np.diff(self._class_ends, prepend=0)
        numbers: list[int] = np.arange(len(self.classes)).repeat(counts).tolist()
        return numbers

    @functools.cached_property
    def samples(self) -> list[tuple[str, int]]:
        """The path and the class of each record, of length N."""
        return [self._sample(index) for index in range(len(self))]

    def __len__(self) -> int:
        return len(self._ends)

    def __getitem__(self, record_key: SupportsIndex) -> Picture:
        path, label = self._sample(operator.index(record_key))
        with open(path, "rb", buffering=0) as file:
            return {"image": file.readall(), "label": label}

    def _sample(self, index: int) -> tuple[str, int]:
        """Return the path and the class of a record."""
        if not 0 <= index < len(self._ends):
            raise IndexError(
                f"record_key must be in [0, {len(self)}), got {index}, for the files of"
                f" {self._path}."
            )
        label = bisect.bisect_right(self._class_ends, index)
        begin = self._ends[index - 1] if index else 0
        name = os.fsdecode(self._names[begin : self._ends[index]])
        return os.path.join(self._path, self.classes[label], name), label

    def __repr__(self) -> str:
        return f"FolderDataSource({self._path!r}, {self._text_without_path()})"

    def _text_without_path(self) -> str:
        """Return the `repr` without the path, so that states work in any folder."""
        import hashlib  # Slow to import.

        classes = os.fsencode("\0".join(self.classes))
        content = hashlib.sha256(classes + str(self._class_ends).encode())
        content.update(self._ends.tobytes())
        content.update(self._names)
        return (
            f"hash_of_names={content.hexdigest()[:16]}, files={len(self)},"
            f" classes={len(self.classes)}"
        )

    def __getstate__(self) -> dict[str, Any]:
        cached = ("targets", "samples")
        return {name: value for name, value in vars(self).items() if name not in cached}


def without_folder_path(text: str) -> str:
    """Return a source's ``repr`` for states, which work wherever the folder is."""
    return _FOLDER_PATH.sub("", text)


def _predicate_of(
    extensions: Any, is_valid_file: Callable[[str], bool] | None
) -> tuple[Callable[[str], bool], str]:
    """Return a predicate for paths of records, and a description for messages."""
    if is_valid_file is not None:
        if extensions is not None:
            raise ValueError(
                "extensions and is_valid_file must not both be given. Pass one of them."
            )
        check_callable("is_valid_file", is_valid_file)
        return is_valid_file, "that is_valid_file accepts"
    if extensions is None:
        extensions = EXTENSIONS
    ends = (extensions,) if isinstance(extensions, str) else tuple(extensions)
    if not ends or not all(isinstance(end, str) and end for end in ends):
        raise ValueError(
            "extensions must be the end of a name such as '.jpg', or a list of these,"
            f" got {extensions!r}."
        )
    lower = tuple(end.lower() for end in ends)
    return lambda path: path.lower().endswith(lower), f"named {', '.join(ends)}"


def _check_path(path: Any) -> str:
    name = os.fspath(path)
    if not isinstance(name, str):
        raise TypeError(f"path must be a str or a pathlib.Path, got {name!r}.")
    if not is_local(name):
        raise ValueError(
            f"path must be a folder of this machine, got {name}. To read remote files"
            " in any order, convert them to record files: see `gristmill convert`."
        )
    name = os.path.expanduser(local_path(name))
    if not os.path.exists(name):
        raise FileNotFoundError(f"path must be an existing folder, got {name}.")
    if not os.path.isdir(name):
        raise NotADirectoryError(
            "path must be a folder with one folder for each class, got the file"
            f" {name}."
        )
    return name


def _classes(path: str) -> list[str]:
    with os.scandir(path) as entries:
        classes = sorted(entry.name for entry in entries if entry.is_dir())
    if not classes:
        raise FileNotFoundError(
            f"path must have one folder for each class, found no folder in {path}."
        )
    return classes


def _files(folder: str, is_record: Callable[[str], bool]) -> Iterator[bytes]:
    """Yield the names of a class's files relative to its folder, in order."""
    prefix_length = len(folder) + 1
    for root, _, names in sorted(_walk(folder)):
        for name in sorted(names):
            path = os.path.join(root, name)
            if is_record(path):
                yield os.fsencode(path[prefix_length:])


def _walk(folder: str) -> Iterator[tuple[str, list[str], list[str]]]:
    """Walk like `os.walk`, including linked folders; raise if a link leads back."""

    def refuse(error: OSError) -> None:
        raise error

    for root, folders, names in os.walk(folder, onerror=refuse, followlinks=True):
        for name in folders:
            path = os.path.join(root, name)
            if os.path.islink(path) and _is_above(path):
                raise ValueError(
                    f"{path} must not be a link to a folder that contains it, because"
                    " its files would be counted again and again. Remove the link."
                )
        yield root, folders, names


def _is_above(link: str) -> bool:
    from pathlib import Path  # Slow to import.

    return any(os.path.samefile(link, parent) for parent in Path(link).parents)
