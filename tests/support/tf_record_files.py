"""TFRecord files for tests, written by hand and by TensorFlow."""

import dataclasses
import fcntl
import os
import pathlib
import pickle
import struct
import subprocess
import sys

import crc32c

from support import extras


def checksum(data):
    crc = crc32c.crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def framed(data):
    length = struct.pack("<Q", len(data))
    head = length + struct.pack("<I", checksum(length))
    return head + data + struct.pack("<I", checksum(data))


def write(path, records):
    path.write_bytes(b"".join(map(framed, records)))
    return path


@dataclasses.dataclass
class Oracle:
    """Files written by TensorFlow: `name`.tfrecord, .gz and .zlib.

    `contents` maps names to records; `damaged` maps names of damaged files to the
    records that TensorFlow read before it gave up.
    """

    folder: pathlib.Path
    contents: dict[str, list[bytes]]
    damaged: dict[str, list[bytes]]


def by_tensorflow(tmp_path_factory):
    """Return the oracle of this test run, importing TensorFlow at most once."""
    extras.need_tensorflow()
    root = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        root = root.parent  # The folder that all processes of a run share.
    with open(root / "tensorflow.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        folder = root / "tensorflow"
        contents = folder / "contents.pickle"  # Written last.
        if not contents.exists():
            folder.mkdir(exist_ok=True)
            script = pathlib.Path(__file__).with_name("tf_record_oracle.py")
            command = [sys.executable, script, folder]
            subprocess.run(command, check=True, capture_output=True)
    return Oracle(folder, *pickle.loads(contents.read_bytes()))
