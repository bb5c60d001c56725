"""Names the files of a conversion, and those that it writes before they are whole."""

from __future__ import annotations

import dataclasses
import os
import re

SUFFIXES = (".array_record", ".arrayrecord")


@dataclasses.dataclass(frozen=True)
class Output:
    """The files of a conversion.

    Args:
        path: The output as the user names it; a suffix of ArrayRecord is kept.
        shards: How many files; None is one file without a number in its name.
    """

    path: str
    shards: int | None

    @property
    def count(self) -> int:
        return 1 if self.shards is None else self.shards

    @property
    def stem(self) -> str:
        return self._split[0]

    @property
    def journal(self) -> str:
        return _hidden(f"{self.stem}.convert.jsonl")

    def final(self, shard: int) -> str:
        stem, suffix = self._split
        if self.shards is None:
            return stem + suffix
        return f"{stem}-{shard:05d}-of-{self.shards:05d}{suffix}"

    def part(self, shard: int) -> str:
        return part_of(self.final(shard))

    def may_be(self, name: str) -> bool:
        """Return whether a conversion to `path` may give a file this name."""
        stem = re.escape(os.path.basename(self.stem))
        pattern = rf"{stem}(-[0-9]{{5}}-of-[0-9]{{5}})?\.array_?record"
        return re.fullmatch(pattern, name) is not None

    @property
    def _split(self) -> tuple[str, str]:
        for suffix in SUFFIXES:
            if self.path.endswith(suffix):
                return self.path.removesuffix(suffix), suffix
        return self.path, SUFFIXES[0]


def part_of(path: str) -> str:
    """Return where a file is written before it gets its name."""
    return _hidden(path + ".part")


def _hidden(path: str) -> str:
    """Return a name beside `path` that no pattern of the user matches."""
    folder, name = os.path.split(path)
    return os.path.join(folder, "." + name)
