"""Converts files to ArrayRecord in an Apache Beam pipeline, on any of Beam's runners.

Needs Apache Beam and the writer of ArrayRecord:

    pip install 'gristmill[beam]'

Transforms for a pipeline of your own:

    with beam.Pipeline(options=options) as pipeline:
        (
            pipeline
            | gristmill.beam.ReadTFRecords("gs://bucket/data/*.tfrecord")
            | gristmill.beam.WriteArrayRecord("gs://bucket/out/train", num_shards=64)
        )

There are also whole pipelines, with the names and arguments of
``array_record.beam.pipelines``.  Paths are those of Beam's file systems.  A file that
is not on a local disk is written to a temporary file first.  Files are read back and
compared before they are renamed to their final names.  If a bundle is retried, or runs
twice at once, one file remains.
"""

from __future__ import annotations

import argparse
import functools
import os
from collections.abc import Iterable, Mapping
from typing import Any

from gristmill._base.lazy_names import public_names
from gristmill._convert.shards import writer_options

try:
    import apache_beam as beam
except ModuleNotFoundError as error:
    raise ImportError(
        "gristmill.beam needs the apache-beam package. Install it with: pip install"
        " 'gristmill[beam]'"
    ) from error
from apache_beam.io import filebasedsink, fileio
from apache_beam.io.filesystem import CompressionTypes
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions

from gristmill._convert.beam_files import Writer, convert_file, records_of

__all__ = [
    "ReadTFRecords",
    "WriteArrayRecord",
    "convert_tf_to_arrayrecord_disk",
    "convert_tf_to_arrayrecord_disk_match_shards",
    "convert_tf_to_arrayrecord_gcs",
]

SUFFIX = ".arrayrecord"


class ReadTFRecords(beam.PTransform):  # type: ignore[misc]
    """Reads the records of TFRecord files; applied to a pipeline.

    The result is a PCollection of ``bytes``, in no order.  Every record's checksum is
    compared.

    Args:
        file_pattern: A path or a pattern of files, plain or compressed by gzip or zlib.
            The first bytes determine the compression.

    Raises:
        BeamIOError: No file matches.  Raised when the pipeline runs.
        CorruptRecord: A record is damaged.  Raised when the pipeline runs.

    Example:
        >>> import apache_beam as beam
        >>> records = beam.Pipeline() | ReadTFRecords("/data/*.tfrecord")
        >>> records.element_type
        <class 'bytes'>
    """

    def __init__(self, file_pattern: str) -> None:
        super().__init__()
        self._file_pattern = file_pattern

    def expand(self, pipeline: Any) -> Any:
        """Return the records, given a pipeline.

        Args:
            pipeline: The pipeline that the transform is applied to.

        Returns:
            A PCollection of ``bytes``.
        """
        return (
            _paths(pipeline, self._file_pattern)
            | "Spread" >> beam.Reshuffle()
            | "Read" >> beam.FlatMap(records_of).with_output_types(bytes)
        )


class WriteArrayRecord(beam.PTransform):  # type: ignore[misc]
    """Writes ``bytes`` to ArrayRecord files; applied to a PCollection.

    The result is a PCollection of the paths of the files.

    Args:
        file_path_prefix: The folder of the files, and the beginning of their names.
        file_name_suffix: The end of their names.
        num_shards: The number of files; 0 leaves it to the runner, which is faster.
        shard_name_template: The part of the names between prefix and suffix.  Runs of S
            stand for the number of the file, and runs of N for the number of files.
            None is "-SSSSS-of-NNNNN".
        group_size: Records compressed together; 1 is best for random access.
        compression: "none", "zstd[:LEVEL]", "brotli[:LEVEL]" or "snappy".

    Raises:
        ValueError: An argument is invalid.

    Example:
        >>> import os, tempfile
        >>> import apache_beam as beam
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with beam.Pipeline() as pipeline:
        ...         write = WriteArrayRecord(f"{folder}/train", num_shards=1)
        ...         _ = pipeline | beam.Create([b"a", b"b"]) | write
        ...     os.listdir(folder)
        ['train-00000-of-00001.array_record']
    """

    def __init__(
        self,
        file_path_prefix: str,
        file_name_suffix: str = ".array_record",
        num_shards: int = 0,
        shard_name_template: str | None = None,
        *,
        group_size: int = 1,
        compression: str = "zstd:3",
    ) -> None:
        super().__init__()
        if num_shards < 0:
            raise ValueError(f"num_shards must be at least 0, got {num_shards}.")
        self._sink = _Sink(
            file_path_prefix,
            file_name_suffix=file_name_suffix,
            num_shards=num_shards,
            shard_name_template=shard_name_template,
            coder=beam.coders.BytesCoder(),
            compression_type=CompressionTypes.UNCOMPRESSED,
        )
        self._sink.writer_options = writer_options(group_size, compression)

    def expand(self, records: Any) -> Any:
        """Return the paths of the files, given a PCollection of records.

        Args:
            records: A PCollection of ``bytes``.

        Returns:
            A PCollection of paths, as str.
        """
        return records | beam.io.Write(self._sink)


class _Sink(filebasedsink.FileBasedSink):  # type: ignore[misc]
    """Beam's sink, which names, renames and removes files, with Gristmill's writer."""

    writer_options = ""

    def open(self, temp_path: str) -> Writer:
        return Writer(temp_path, self.writer_options)

    def write_record(self, file_handle: Writer, value: bytes) -> None:
        file_handle.write(value)

    def close(self, file_handle: Writer) -> None:
        file_handle.close()


def _paths(pipeline: Any, file_pattern: str) -> Any:
    """Return the paths of the files that match a pattern, at least one."""
    disallow = fileio.EmptyMatchTreatment.DISALLOW
    return (
        pipeline
        | "Match" >> fileio.MatchFiles(file_pattern, disallow)
        | "Path" >> beam.Map(lambda match: match.path).with_output_types(str)
    )


def _conversion_pipeline(
    file_pattern: str, output_path_of: Any, options: str, pipeline_options: Any
) -> Any:
    """Return a pipeline that converts each TFRecord file to one file, in order.

    Args:
        file_pattern: The TFRecord files.
        output_path_of: Returns the path of a file, given the path of the TFRecord file,
            its number in the sorted list, and the number of files.
        options: Options of the writer.
        pipeline_options: Options of the pipeline.
    """
    pipeline = beam.Pipeline(options=pipeline_options)
    (
        _paths(pipeline, file_pattern)
        | "List" >> beam.combiners.ToList()
        | "Name" >> beam.FlatMap(_pairs, output_path_of)
        | "Spread" >> beam.Reshuffle()
        | "Convert" >> beam.MapTuple(lambda a, b: convert_file(a, b, options))
    )
    return pipeline


def _pairs(paths: Iterable[str], output_path_of: Any) -> list[tuple[str, str]]:
    """Return pairs of the path of a file and the path of its converted file."""
    ordered = sorted(paths)
    count = len(ordered)
    pairs = [(path, output_path_of(path, i, count)) for i, path in enumerate(ordered)]
    sources = {final: path for path, final in reversed(pairs)}
    for path, final in pairs:
        if sources[final] != path:
            raise ValueError(
                f"Each TFRecord file must have an output file of its own, got {final}"
                f" for both {sources[final]} and {path}. Convert their folders one by"
                " one."
            )
    return pairs


def convert_tf_to_arrayrecord_disk(
    num_shards: int = 1,
    args: Mapping[str, Any] | None = None,
    pipeline_options: Any = None,
    *,
    group_size: int = 1,
    compression: str = "zstd:3",
) -> Any:
    """Return a pipeline that converts TFRecord files to any number of files.

    Args:
        num_shards: The number of files; 0 leaves it to the runner.
        args: ``{"input": pattern, "output": prefix}``.  None takes ``--input`` and
            ``--output`` of the command line.
        pipeline_options: Beam's PipelineOptions, or a dict of these.  None takes the
            rest of the command line.
        group_size: See `WriteArrayRecord`.
        compression: See `WriteArrayRecord`.

    Returns:
        A Pipeline; call its ``run()``.  It writes
        ``{output}-00000-of-0000N.arrayrecord``, with the records in no order.

    Raises:
        ValueError: An argument is missing or wrong.

    Example:
        >>> import pathlib, tempfile
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> (folder / "empty.tfrecord").touch()
        >>> args = {"input": f"{folder}/*.tfrecord", "output": f"{folder}/train"}
        >>> pipeline = convert_tf_to_arrayrecord_disk(1, args, {})
        >>> pipeline.run().wait_until_finish()
        'DONE'
        >>> [path.name for path in folder.glob("*.arrayrecord")]
        ['train-00000-of-00001.arrayrecord']
    """
    args, pipeline_options = _arguments(args, pipeline_options)
    pipeline = beam.Pipeline(options=pipeline_options)
    write = WriteArrayRecord(
        args["output"],
        SUFFIX,
        num_shards,
        group_size=group_size,
        compression=compression,
    )
    pipeline | "Read TFRecord" >> ReadTFRecords(args["input"]) | "Write" >> write
    return pipeline


def convert_tf_to_arrayrecord_disk_match_shards(
    args: Mapping[str, Any] | None = None,
    pipeline_options: Any = None,
    *,
    group_size: int = 1,
    compression: str = "zstd:3",
) -> Any:
    """Return a pipeline that converts each TFRecord file to one file.

    File k, in the order of the paths, becomes shard k with its records in the same
    order.  No records are shuffled between workers, and each run writes the same files.

    Args:
        args: See `convert_tf_to_arrayrecord_disk`.
        pipeline_options: See `convert_tf_to_arrayrecord_disk`.
        group_size: See `WriteArrayRecord`.
        compression: See `WriteArrayRecord`.

    Returns:
        A Pipeline; call its ``run()``.  It writes
        ``{output}-00000-of-0000N.arrayrecord``, one for each of N inputs.

    Raises:
        ValueError: An argument is missing or wrong.

    Example:
        >>> import pathlib, tempfile
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> (folder / "empty.tfrecord").touch()
        >>> args = {"input": f"{folder}/*.tfrecord", "output": f"{folder}/train"}
        >>> pipeline = convert_tf_to_arrayrecord_disk_match_shards(args, {})
        >>> pipeline.run().wait_until_finish()
        'DONE'
        >>> [path.name for path in folder.glob("*.arrayrecord")]
        ['train-00000-of-00001.arrayrecord']
    """
    args, pipeline_options = _arguments(args, pipeline_options)
    name = functools.partial(_numbered_name, args["output"])
    options = writer_options(group_size, compression)
    return _conversion_pipeline(args["input"], name, options, pipeline_options)


def convert_tf_to_arrayrecord_gcs(
    overwrite_extension: bool = False,
    file_path_suffix: str = SUFFIX,
    args: Mapping[str, Any] | None = None,
    pipeline_options: Any = None,
    *,
    group_size: int = 1,
    compression: str = "zstd:3",
) -> Any:
    """Return a pipeline that converts each TFRecord file, and keeps its name's stem.

    The output is a folder on any of Beam's file systems, such as ``gs://bucket/out``.

    Args:
        overwrite_extension: Whether the suffix replaces that of the name; else it is
            appended.
        file_path_suffix: The end of the files' names.
        args: ``{"input": pattern, "output": folder}``.  None takes ``--input`` and
            ``--output`` of the command line.
        pipeline_options: See `convert_tf_to_arrayrecord_disk`.
        group_size: See `WriteArrayRecord`.
        compression: See `WriteArrayRecord`.

    Returns:
        A Pipeline; call its ``run()``.

    Raises:
        ValueError: An argument is missing or wrong.  Raised when the pipeline runs if
            two files in different folders have the same name.

    Example:
        >>> args = {"input": "gs://bucket/data/*", "output": "gs://bucket/out"}
        >>> pipeline = convert_tf_to_arrayrecord_gcs(args=args, pipeline_options={})
        >>> pipeline.run()  # doctest: +SKIP
    """
    args, pipeline_options = _arguments(args, pipeline_options)
    name = functools.partial(
        _converted_name, args["output"], file_path_suffix, overwrite_extension
    )
    options = writer_options(group_size, compression)
    return _conversion_pipeline(args["input"], name, options, pipeline_options)


def _arguments(
    args: Mapping[str, Any] | None, options: Any
) -> tuple[Mapping[str, Any], Any]:
    """Return input and output, and Beam's options; None takes the command line."""
    if args is None or options is None:
        parser = argparse.ArgumentParser(allow_abbrev=False)
        parser.add_argument("--input", help="pattern of the TFRecord files")
        parser.add_argument("--output", help="how the ArrayRecord files' names begin")
        namespace, other_arguments = parser.parse_known_args()
        args = vars(namespace) if args is None else args
        options = PipelineOptions(other_arguments) if options is None else options
    if isinstance(options, Mapping):
        options = PipelineOptions.from_dictionary(dict(options))
    for name in ("input", "output"):
        if not args.get(name):
            raise ValueError(
                f"args must have {name!r}, got {dict(args)}. Pass"
                " args={'input': ..., 'output': ...}, or --input and --output on the"
                " command line."
            )
    return args, options


def _numbered_name(prefix: str, path: str, number: int, count: int) -> str:
    return f"{prefix}-{number:05d}-of-{count:05d}{SUFFIX}"


def _converted_name(
    folder: str, suffix: str, overwrite: bool, path: str, number: int, count: int
) -> str:
    _, name = FileSystems.split(path)
    stem = os.path.splitext(name)[0] if overwrite else name
    return str(FileSystems.join(folder, stem + suffix))


def __dir__() -> list[str]:
    return public_names(__all__)
