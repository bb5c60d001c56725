"""``gristmill tokenize``: makes files of token ids from files of texts."""

from __future__ import annotations

import argparse
import os
import time
from typing import Any

import numpy as np

from gristmill._base.progress_bar import Progress, new_display
from gristmill._cli import convert
from gristmill._cli.terminal import STYLE, format_bytes, format_count
from gristmill._convert import finding
from gristmill._convert.errors import UsageError, import_optional
from gristmill._convert.token_pieces import PieceWriter, TokenizerFile
from gristmill._convert.token_shards import FORMATS
from gristmill._convert.tokenization import (
    TokenOutput,
    TokenTotals,
    new_output,
    tokenize,
)

DESCRIPTION = """\
Tokenize the documents in JSON lines (plain, gzip or zstd), Parquet files, lines of
text, folders of text files, ArrayRecord files, or TFRecord files.

The documents of all inputs, in the given order, are split into contiguous ranges of
equal length, one for each shard.  The result is the same for any number of processes.
Each shard is written to a hidden file next to OUT, read back, and compared by SHA-256.
When all are finished, they are renamed.  To resume an interrupted tokenization, run the
same command again.  Finished parts are recorded in .OUT.tokenize.jsonl, which you may
delete when you no longer need it.
"""

EPILOG = """\
formats:
  megatron     OUT.bin and OUT.idx, as Megatron writes them; a document is a sequence
  npy          OUT.npy, an array without a header, as OLMo-core writes it; the last
               token of --suffix ends each document
  arrayrecord  OUT.array_record; a record is the bytes of a document's tokens

OUT.manifest.json has the counts and the SHA-256 of each file, and the options.

examples:
  gristmill tokenize data.jsonl out/train --tokenizer tokenizer.json --suffix '</s>'
  gristmill tokenize 'part-*.parquet' out/train --tokenizer tokenizer.json --format npy
    --suffix '<|endoftext|>' --field content --shards 16
"""


def add_to(commands: Any) -> None:
    """Add the command to the parser of `gristmill`."""
    purpose = "tokenize JSON lines, Parquet or texts to files of token ids"
    parser = commands.add_parser(
        "tokenize", help=purpose, description=DESCRIPTION, epilog=EPILOG, **STYLE
    )
    add = parser.add_argument
    add("inputs", nargs="+", metavar="IN", help="a file, a folder, or a 'pattern*'")
    add("output", metavar="OUT", help="the start of the names of the files")
    add(
        "--tokenizer",
        required=True,
        metavar="FILE",
        help="a tokenizer.json of the tokenizers library",
    )
    add(
        "--library",
        choices=("tokenizers", "gigatoken"),
        default="tokenizers",
        help="the library that encodes texts (default: %(default)s)",
    )
    add(
        "--format",
        choices=tuple(FORMATS),
        default="megatron",
        help="format of the output (default: %(default)s)",
    )
    for name, where in (("prefix", "before"), ("suffix", "after")):
        add(
            f"--{name}",
            action="append",
            default=[],
            metavar="TOKEN",
            help=f"a token to put {where} each document, by its text or id; may be"
            " repeated",
        )
    add(
        "--dtype",
        choices=("uint8", "int8", "uint16", "int16", "uint32", "int32", "int64"),
        metavar="DTYPE",
        help="dtype of the ids (default: uint16 if it can contain all ids, otherwise"
        " int32 for megatron, uint32 for other formats)",
    )
    _add_options_of_texts(add)
    convert.add_options_of_runs(add)
    parser.set_defaults(run=run, parser=parser)


def _add_options_of_texts(add: Any) -> None:
    """Add the options that control how texts are found in the inputs."""
    add(
        "--field",
        default="text",
        metavar="NAME",
        help="the field or column that contains the text (default: %(default)s)",
    )
    add(
        "--records",
        choices=("json", "example", "text"),
        help="what a record of ArrayRecord and TFRecord files is (default: json for"
        " ArrayRecord, example for TFRecord)",
    )
    add(
        "--drop-empty",
        action="store_true",
        help="drop and count documents without tokens (default: such a document is an"
        " error)",
    )
    convert.add_format_option(add)
    convert.add_link_option(add)


def run(arguments: argparse.Namespace) -> int:
    """Tokenize the inputs and print a summary."""
    paths = convert.expand(arguments)
    inputs = finding.inputs_of(
        paths,
        arguments.file_format,
        None,
        False,
        arguments.follow_links,
        text_column=arguments.field,
    )
    texts = finding.texts_of(
        inputs, arguments.file_format, arguments.records, arguments.field
    )
    by_input = arguments.shards == "inputs"
    shards = len(inputs) if by_input else arguments.shards
    output = new_output(arguments.output, shards, arguments.format)
    convert.check_not_inputs(inputs, output)
    if arguments.format == "arrayrecord":
        import_optional("array_record")
    tokenizer = TokenizerFile(arguments.tokenizer)
    writer = _writer_of(arguments, tokenizer)
    # Each process encodes in one thread.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    tokenizer.check_ids([*arguments.prefix, *arguments.suffix], writer)
    progress = Progress() if arguments.quiet else new_display()
    start = time.monotonic()
    with convert.ending(progress):
        totals, written_count = tokenize(
            texts,
            output,
            tokenizer,
            writer,
            ranges="inputs" if by_input else "even",
            processes=arguments.processes,
            restart=arguments.restart,
            progress=progress,
        )
    if not arguments.quiet:
        seconds = time.monotonic() - start
        print(_summary(totals, output, written_count, seconds))
    return 0


def _writer_of(arguments: argparse.Namespace, tokenizer: TokenizerFile) -> PieceWriter:
    """Return the writer for a command's options.

    Raises:
        UsageError: The options do not apply to the format or the tokenizer.
    """
    prefix = tuple(map(tokenizer.id_of, arguments.prefix))
    suffix = tuple(map(tokenizer.id_of, arguments.suffix))
    token_format = FORMATS[arguments.format]
    largest = tokenizer.largest_id
    dtype = arguments.dtype or (
        "uint16" if largest <= np.iinfo(np.uint16).max else token_format.wide_dtype
    )
    if not token_format.allows(np.dtype(dtype)):
        raise UsageError(f"--format {arguments.format} does not allow --dtype {dtype}.")
    if largest > np.iinfo(dtype).max:
        raise UsageError(
            f"--dtype must contain the ids 0 to {largest} of the tokenizer, got"
            f" {dtype}."
        )
    eos_id = None
    if arguments.format == "npy":
        if not suffix:
            raise UsageError(
                "--format npy needs --suffix with the token that ends documents, such"
                " as --suffix '</s>'."
            )
        eos_id = suffix[-1]
        if (prefix + suffix).count(eos_id) > 1:
            raise UsageError(
                "--format npy needs a last token of --suffix that is not in --prefix"
                f" or --suffix before, got the id {eos_id} twice."
            )
    return PieceWriter(
        os.path.abspath(arguments.tokenizer),
        tokenizer.sha256,
        arguments.library,
        prefix,
        suffix,
        dtype,
        eos_id,
        arguments.drop_empty,
    )


def _summary(
    totals: TokenTotals, output: TokenOutput, written_count: int, seconds: float
) -> str:
    """Describe a finished tokenization; this run wrote `written_count` pieces."""
    name = convert.name_of(output)
    counts = (
        f"{format_count(totals.documents, 'document')}, {totals.tokens:,} tokens of"
        f" {format_bytes(totals.text_bytes)} of text"
    )
    if totals.dropped_documents:
        counts += f", {totals.dropped_documents:,} empty dropped"
    if not written_count:
        return f"{name}: {counts}, already finished."
    return f"{name}: {counts}, written and verified in {seconds:.1f} s."
