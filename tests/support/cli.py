"""Runs the command line like users do, and writes files for it to read."""

import contextlib
import gzip
import io
import os
import resource
import subprocess
import sys
import zlib
from typing import NamedTuple

from array_record.python.array_record_module import (
    ArrayRecordReader,
    ArrayRecordWriter,
)

from gristmill._cli import main
from support.tf_record_files import framed

COMMAND = [sys.executable, "-m", "gristmill"]


class Ended(NamedTuple):
    status: int
    out: str
    err: str


def run(*arguments):
    """Run a command in this process."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main([str(argument) for argument in arguments])
    return Ended(status, out.getvalue(), err.getvalue())


def start(*arguments, **options):
    """Start a command in its own process."""
    return subprocess.Popen(
        [*COMMAND, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def limit_files(process, size):
    """Limit the size of files that a process and its later children write."""
    limits = (size, resource.RLIM_INFINITY)
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, limits)


def write_tf_record(path, records, compression=""):
    content = b"".join(map(framed, records))
    if compression == "gzip":
        content = gzip.compress(content, 1)
    elif compression == "zlib":
        content = zlib.compress(content, 1)
    path.write_bytes(content)
    return path


def write_array_record(path, records, options="group_size:1"):
    writer = ArrayRecordWriter(str(path), options)
    for record in records:
        writer.write(record)
    writer.close()
    return path


def read_array_record(*paths):
    """Return the records of files, read by the array-record package."""
    found = []
    for path in paths:
        reader = ArrayRecordReader(str(path))
        count = reader.num_records()
        found += reader.read(range(count)) if count else []
        reader.close()
    return found


def flip(path, offset):
    """Change one bit of a file."""
    with open(path, "r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ 0x10]))


def shards(folder, stem, count):
    return [
        folder / f"{stem}-{i:05d}-of-{count:05d}.array_record" for i in range(count)
    ]


def names(folder):
    """Return the names in a folder, including hidden ones."""
    return sorted(os.listdir(folder))
