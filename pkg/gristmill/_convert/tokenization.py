"""Tokenizes the documents of inputs to a set of files of tokens.

A tokenization is a conversion in two stages.  First the documents are tokenized in
pieces, whose number does not depend on the number of processes.  Then each shard is
written from its pieces, in order.  The journal records finished pieces and shards.  An
interrupted tokenization therefore resumes with the same result.
"""

from __future__ import annotations

import bisect
import collections
import contextlib
import dataclasses
import functools
import hashlib
import importlib.metadata
import itertools
import json
import os
import re
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from gristmill._base.progress_bar import Progress
from gristmill._convert import worker_pool
from gristmill._convert.conversion import (
    Conversion,
    Ranges,
    header_of,
    make_folder,
)
from gristmill._convert.errors import ConversionError
from gristmill._convert.hashed_file import HashedFile
from gristmill._convert.inputs import Input
from gristmill._convert.journal import Journal
from gristmill._convert.paths import Output, hidden, part_of
from gristmill._convert.token_pieces import (
    PieceWriter,
    TokenizerFile,
    WrittenPiece,
    lengths_path,
)
from gristmill._convert.token_shards import (
    FORMATS,
    Pieces,
    ShardTask,
    WrittenShard,
    write_shard,
)

# A piece has at least and at most about this many bytes of the inputs.
LEAST_PIECE_BYTES = 4 << 20
MOST_PIECE_BYTES = 32 << 20
# The number of pieces if neither limit applies.
PIECES = 256


@dataclasses.dataclass(frozen=True)
class TokenOutput(Output):
    """The files of a tokenization.

    Args:
        format: The name of the format, in `FORMATS`.
    """

    format: str = "megatron"

    def index(self, shard: int) -> str:
        """Return the path of the index of a shard; only if the format has indices."""
        return self.prefix(shard) + (FORMATS[self.format].index_suffix or "")

    @property
    def manifest(self) -> str:
        """The path of the file that describes the output."""
        return f"{self.stem}.manifest.json"

    def finals(self) -> list[str]:
        paths = super().finals()
        if FORMATS[self.format].index_suffix:
            paths += map(self.index, range(self.count))
        return [*paths, self.manifest]

    def possible_suffixes(self) -> list[str]:
        found = [suffix for each in FORMATS.values() for suffix in each.suffixes]
        found += [each.index_suffix for each in FORMATS.values() if each.index_suffix]
        return found

    def is_possible_name(self, name: str) -> bool:
        is_manifest = name == os.path.basename(self.manifest)
        return is_manifest or super().is_possible_name(name)

    def piece(self, number: int) -> str:
        """Return the path of the tokens of a piece."""
        return hidden(f"{self.stem}.piece-{number:06d}")

    def existing_pieces(self) -> list[str]:
        """Return the paths of all files of pieces of any tokenization to this OUT."""
        folder = os.path.dirname(self.stem)
        name = re.escape(os.path.basename(hidden(self.stem)))
        pattern = re.compile(rf"{name}\.piece-[0-9]{{6,}}(\.lengths)?")
        return [
            os.path.join(folder, name)
            for name in os.listdir(folder or ".")
            if pattern.fullmatch(name)
        ]


def new_output(path: str, shards: int | None, format: str) -> TokenOutput:
    """Return the files of a tokenization to `path`."""
    suffixes = FORMATS[format].suffixes
    # Users may write the name of the index.
    path = path.removesuffix(FORMATS[format].index_suffix or "")
    return TokenOutput(path, shards, "tokenize", suffixes, format)


@dataclasses.dataclass(frozen=True)
class TokenTotals:
    """The counts of a finished tokenization."""

    documents: int
    dropped_documents: int
    tokens: int
    text_bytes: int


def tokenize(
    inputs: Sequence[Input],
    output: TokenOutput,
    tokenizer: TokenizerFile,
    writer: PieceWriter,
    *,
    ranges: Ranges,
    processes: int,
    restart: bool,
    progress: Progress,
) -> tuple[TokenTotals, int]:
    """Tokenize the texts of inputs to an output.

    Args:
        inputs: The inputs, in order; a record is a text.
        output: The output files.
        tokenizer: The tokenizer's file.
        writer: Tokenizes the texts with it.
        ranges: "even" splits the documents evenly, with a difference of at most one;
            "inputs" writes the documents of one input to each shard.
        processes: The number of pieces to write at once.
        restart: Whether to remove the files of an earlier run, and start again.
        progress: Receives the progress.

    Returns:
        The counts of the output, and the number of pieces written by this run.

    Raises:
        ConversionError: The tokenization failed. Finished pieces remain, and the same
            call continues from there.
    """
    writer.open()  # Raise errors before any work.
    make_folder(output)
    options = {
        "format": output.format,
        **dataclasses.asdict(writer),
        "library": f"{writer.library} {importlib.metadata.version(writer.library)}",
    }
    del options["tokenizer"]  # Its path may change.
    header = json.loads(json.dumps(header_of(inputs, output, options, ranges)))
    header["pieces"] = _pieces_per_shard(inputs, output.count, ranges)
    kinds = {"piece": WrittenPiece, "shard": WrittenShard}
    with contextlib.closing(Journal(output.journal, kinds)) as journal:
        tokenization = Tokenization(
            inputs, output, header, writer, processes, progress, journal, tokenizer
        )
        written_count = tokenization.run(restart)
        return tokenization.totals(list(tokenization.finished.values())), written_count


def _pieces_per_shard(
    inputs: Sequence[Input], shards: int, ranges: Ranges
) -> list[int]:
    """Return the number of pieces of each shard."""
    sizes = [source.size() for source in inputs]
    if ranges == "even":
        sizes = [sum(sizes) // shards] * shards
    piece_bytes = min(max(sum(sizes) // PIECES, LEAST_PIECE_BYTES), MOST_PIECE_BYTES)
    return [max(1, -(-size // piece_bytes)) for size in sizes]


@dataclasses.dataclass(frozen=True)
class Tokenization(Conversion):
    """A tokenization whose journal is open. A unit is a piece."""

    output: TokenOutput
    writer: PieceWriter
    tokenizer: TokenizerFile
    unit_kind: ClassVar[str] = "piece"
    noun: ClassVar[str] = "documents"

    def remove_earlier_files(self) -> None:
        self.remove(self.output.existing_pieces())
        super().remove_earlier_files()

    def begin(self) -> None:
        super().begin()
        if not self.finished:
            self.remove(self.output.existing_pieces())

    def write_pending(self) -> int:
        written_count = super().write_pending()
        self._write_shards()
        return written_count

    def finish(self) -> None:
        if not self.tokenizer.is_unchanged():
            raise ConversionError(
                f"{self.tokenizer.path} was changed while it was used. Run the command"
                " again with --restart when the file no longer changes."
            )
        if not os.path.exists(self.output.manifest):
            with HashedFile(part_of(self.output.manifest)) as file:
                text = json.dumps(self._manifest(), indent=1, ensure_ascii=False)
                file.write(text.encode() + b"\n")
                file.finish()
        super().finish()

    def totals(self, pieces: Sequence[WrittenPiece]) -> TokenTotals:
        """Add up the counts of pieces."""
        names = [field.name for field in dataclasses.fields(TokenTotals)]
        sums = [sum(getattr(piece, name) for piece in pieces) for name in names]
        return TokenTotals(*sums)

    def unit_count(self) -> int:
        return sum(self.header["pieces"])

    def written_tokens(self) -> int:
        return sum(piece.tokens for piece in self.finished.values())

    def unit_path(self, number: int) -> str:
        return self.output.piece(number)

    def unit_bounds(self) -> list[int]:
        bounds = []
        shards = itertools.pairwise(self.shard_bounds())
        for (begin, end), count in zip(shards, self.header["pieces"], strict=True):
            size = end - begin
            bounds += [begin + number * size // count for number in range(count)]
        return [*bounds, sum(self.journal.counts or [])]

    def is_finished(self, number: int) -> bool:
        """Return whether a piece, or the shard that it belongs to, is finished."""
        piece = self.finished.get(number)
        if piece is None:
            return False
        shard = bisect.bisect_right(self._first_pieces, number) - 1
        if self._is_shard_finished(shard):
            return True
        path = self.output.piece(number)
        with contextlib.suppress(FileNotFoundError):
            tokens = os.path.getsize(path) // np.dtype(self.writer.dtype).itemsize
            documents = os.path.getsize(lengths_path(path)) // 4
            return (tokens, documents) == (piece.tokens, piece.documents)
        return False

    @functools.cached_property
    def _first_pieces(self) -> list[int]:
        """The number of the first piece of each shard, and the number of all pieces."""
        return list(itertools.accumulate(self.header["pieces"], initial=0))

    def _pieces_of(self, shard: int) -> range:
        return range(self._first_pieces[shard], self._first_pieces[shard + 1])

    def _is_shard_finished(self, shard: int) -> bool:
        """Return whether a shard is in the journal and its files have their sizes."""
        written = self.journal.finished["shard"].get(shard)
        if written is None:
            return False
        files = [(self.output.final(shard), written.file_bytes)]
        if written.index_sha256:
            files.append((self.output.index(shard), written.index_bytes))
        return all(_has_size(path, size) for path, size in files)

    def _write_shards(self) -> None:
        """Write the shards that are not finished from their pieces."""
        tasks = []
        for shard in range(self.output.count):
            if self._is_shard_finished(shard):
                continue
            numbers = self._pieces_of(shard)
            pieces = Pieces(
                [self.output.piece(number) for number in numbers],
                [self.finished[number] for number in numbers],
                self.writer.dtype,
            )
            paths = (self.output.part(shard), part_of(self.output.index(shard)))
            tasks.append(ShardTask(shard, self.output.format, pieces, *paths))
        self.progress.begin("shards joined", len(tasks))
        reports = worker_pool.run(write_shard, tasks, self.processes)
        with contextlib.closing(reports):
            for number, report in reports:
                task = tasks[number]
                self.journal.add("shard", task.number, report)
                self.remove(task.pieces.files())
                self.progress.advance(1)
        self.remove(self.output.existing_pieces())

    def _manifest(self) -> dict[str, Any]:
        """Return the description of the output, as JSON values."""
        options = self.header["writer_options"]
        recipe = json.dumps([self.header["inputs"], options], sort_keys=True)
        return {
            **options,
            **dataclasses.asdict(self.totals(list(self.finished.values()))),
            "inputs": self._describe_inputs(),
            "shards": [*map(self._describe_shard, range(self.output.count))],
            "recipe_sha256": hashlib.sha256(recipe.encode()).hexdigest(),
        }

    def _describe_inputs(self) -> list[dict[str, Any]]:
        dropped: collections.Counter[str] = collections.Counter()
        for piece in self.finished.values():
            dropped.update(piece.dropped_by_input)
        counts = self.journal.counts or []
        return [
            {
                **source,
                "documents": count - dropped[f"{number}"],
                "dropped_documents": dropped[f"{number}"],
            }
            for number, (source, count) in enumerate(
                zip(self.header["inputs"], counts, strict=True)
            )
        ]

    def _describe_shard(self, shard: int) -> dict[str, Any]:
        written = self.journal.finished["shard"][shard]
        files = [(self.output.final(shard), written.file_bytes, written.sha256)]
        if written.index_sha256:
            index = (written.index_bytes, written.index_sha256)
            files.append((self.output.index(shard), *index))
        pieces = [self.finished[number] for number in self._pieces_of(shard)]
        return {
            **dataclasses.asdict(self.totals(pieces)),
            "files": [
                {"name": os.path.basename(path), "bytes": size, "sha256": sha256}
                for path, size, sha256 in files
            ],
        }


def _has_size(final: str, size: int) -> bool:
    """Return whether a file, or its part until it is renamed, has a size."""
    for path in (part_of(final), final):
        with contextlib.suppress(FileNotFoundError):
            return os.path.getsize(path) == size
    return False
