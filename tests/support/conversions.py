"""Records to convert, and what conversions leave in a folder."""

import contextlib

import numpy as np

from support import extras
from support.cli import names
from support.waiting import wait_for


def sample(count, seed=0, most=300):
    rng = np.random.default_rng(seed)
    return [rng.bytes(int(size)) for size in rng.integers(0, most, count)]


def flat(parts):
    return [record for part in parts for record in part]


def features_of(record):
    """Return the features of an Example, by protobuf."""
    message = extras.tensorflow("tensorflow.core.example.example_pb2").Example
    found = {}
    for name, feature in message.FromString(record).features.feature.items():
        kind = feature.WhichOneof("kind")
        found[name] = (kind.removesuffix("_list"), list(getattr(feature, kind).value))
    return found


def wait_for_lines(process, journal, count):
    """Wait until a journal has `count` lines, or the process has ended."""
    wait_for(lambda: lines_of(journal) >= count or process.poll() is not None)


def lines_of(journal):
    with contextlib.suppress(FileNotFoundError):
        return journal.read_bytes().count(b"\n")
    return 0


def left(folder):
    """Return the names in a folder that look like results."""
    return [name for name in names(folder) if name.startswith("x")]
