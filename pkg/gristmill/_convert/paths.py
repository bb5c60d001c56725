"""Names the output files of a conversion, and finds the files below a folder.

Files that are not regular, and may never end, are rejected.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import re
import stat
from collections.abc import Sequence

from gristmill._convert.errors import ConversionError, from_os_error

SUFFIXES = (".array_record", ".arrayrecord")


@functools.lru_cache(maxsize=8)  # Called repeatedly for the same folder.
def files_below(folder: str, follow_links: bool) -> tuple[str, ...]:
    """Return the sorted relative paths of all files below a folder, except hidden ones.

    Links to folders are followed, except to a folder that contains the link.

    Raises:
        ConversionError: A link leads out of the folder without `follow_links`, or a
            folder cannot be read.
    """

    def raise_error(error: OSError) -> None:
        raise from_os_error(error, folder)

    relative_paths = []
    root = os.path.realpath(folder)
    # Maps each folder to visit to the ids of the folder and of those that contain it.
    ids_on_path = {folder: frozenset([_folder_id(folder)])}
    for parent, folders, names in os.walk(
        folder, onerror=raise_error, followlinks=True
    ):
        outer_ids = ids_on_path.pop(parent)
        visible = [name for name in folders if not name.startswith(".")]
        files = [name for name in names if not name.startswith(".")]
        if not follow_links:
            for name in [*visible, *files]:
                _check_inside(os.path.join(parent, name), root)
        ids = {name: _folder_id(os.path.join(parent, name)) for name in visible}
        folders[:] = [name for name in visible if ids[name] not in outer_ids]
        for name in folders:
            ids_on_path[os.path.join(parent, name)] = outer_ids | {ids[name]}
        relative_parent = os.path.relpath(parent, folder)
        prefix = "" if relative_parent == "." else relative_parent + "/"
        relative_paths += [prefix + name for name in files]
    return tuple(sorted(relative_paths))


def _check_inside(path: str, root: str) -> None:
    """Raise ConversionError if a link leads out of a folder; ignore broken links."""
    if not os.path.islink(path) or not os.path.exists(path):
        return
    target = os.path.realpath(path)
    if os.path.commonpath([root, target]) != root:
        raise ConversionError(
            f"{path}: a link to {target}, out of the folder. Pass --follow-links to"
            " read what such links lead to."
        )


def stat_regular(path: str) -> os.stat_result:
    """Return the status of a regular file, without opening it.

    Raises:
        ConversionError: The file does not exist, or is a pipe, a socket or a device,
            which may never end.
    """
    if os.path.islink(path) and not os.path.exists(path):
        raise broken_link_error(path)
    status = _status(path)
    if not stat.S_ISREG(status.st_mode):
        raise ConversionError(f"{path}: not a regular file.")
    return status


def broken_link_error(path: str) -> ConversionError:
    """Return a ConversionError for a broken link."""
    return ConversionError(f"{path}: a broken link, to {os.readlink(path)}.")


def _folder_id(path: str) -> tuple[int, int]:
    """Return an id that a folder shares with all links to it."""
    status = _status(path)
    return status.st_dev, status.st_ino


def _status(path: str) -> os.stat_result:
    try:
        return os.stat(path)
    except OSError as error:
        raise from_os_error(error, path) from error


@dataclasses.dataclass(frozen=True)
class Output:
    """The files of a conversion.

    Args:
        path: The output as the user wrote it; one of `suffixes` is kept.
        shards: The number of shards; None is one without a number in its name.
        command: The command of `gristmill` that writes the output.
        suffixes: The suffixes that a shard may have. The first is the default.
    """

    path: str
    shards: int | None
    command: str = "convert"
    suffixes: tuple[str, ...] = SUFFIXES

    @property
    def count(self) -> int:
        return 1 if self.shards is None else self.shards

    @property
    def stem(self) -> str:
        """The path without the suffix and the number of a shard."""
        return self._split[0]

    @property
    def journal(self) -> str:
        """The path of the file that records the finished shards."""
        return hidden(f"{self.stem}.{self.command}.jsonl")

    def final(self, shard: int) -> str:
        """Return the path of a finished shard."""
        return self.prefix(shard) + self._split[1]

    def prefix(self, shard: int) -> str:
        """Return the path of a finished shard without its suffix."""
        if self.shards is None:
            return self.stem
        return f"{self.stem}-{shard:05d}-of-{self.shards:05d}"

    def finals(self) -> list[str]:
        """Return the paths of all finished files."""
        return [self.final(shard) for shard in range(self.count)]

    def part(self, shard: int) -> str:
        """Return the temporary path of a shard until all shards are finished."""
        return part_of(self.final(shard))

    def possible_suffixes(self) -> Sequence[str]:
        """Return the suffixes of files that a conversion to `path` could write."""
        return self.suffixes

    def is_possible_name(self, name: str) -> bool:
        """Return whether a conversion to `path` could write a file with this name."""
        stem = re.escape(os.path.basename(self.stem))
        suffixes = "|".join(map(re.escape, self.possible_suffixes()))
        pattern = rf"{stem}(-[0-9]{{5}}-of-[0-9]{{5}})?({suffixes})"
        return re.fullmatch(pattern, name) is not None

    @property
    def _split(self) -> tuple[str, str]:
        """The stem and the suffix."""
        for suffix in self.suffixes:
            if self.path.endswith(suffix):
                return self.path.removesuffix(suffix), suffix
        return self.path, self.suffixes[0]


def part_of(path: str) -> str:
    """Return the temporary path of a file until it is finished."""
    return hidden(path + ".part")


def hidden(path: str) -> str:
    """Return a hidden name next to `path`, which a user's pattern does not match."""
    folder, name = os.path.split(path)
    return os.path.join(folder, "." + name)
