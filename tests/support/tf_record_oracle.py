"""Writes and reads files by TensorFlow, in its own process because importing is slow.

    python tests/support/tf_record_oracle.py FOLDER

Writes TFRecord files to the folder, damages some, and pickles their content.
"""

import pathlib
import pickle
import sys

import numpy as np
import tensorflow as tf

SIZES = {
    "mixed": [0, 1, 100, 0, 16_367, 16_368, 5000, 131_072, 3, 1 << 20, 7, *range(90)],
    "tiny": [n % 40 for n in range(3000)],
    "empty": [0] * 50,
    "one": [1000],
    "none": [],
}


def write(path, records, compression=""):
    with tf.io.TFRecordWriter(str(path), compression) as writer:
        for record in records:
            writer.write(record)


def read(path):
    """Return the records before the first error."""
    found = []
    try:
        for record in tf.data.TFRecordDataset(str(path)):
            found.append(record.numpy())
    except tf.errors.DataLossError:
        pass
    return found


def main(folder):
    rng = np.random.default_rng(0)
    contents = {
        name: [rng.bytes(size) for size in sizes] for name, sizes in SIZES.items()
    }
    for name, records in contents.items():
        write(folder / f"{name}.tfrecord", records)
        write(folder / f"{name}.gz", records, "GZIP")
        write(folder / f"{name}.zlib", records, "ZLIB")
    whole = (folder / "tiny.tfrecord").read_bytes()
    damaged = {}
    for k, at in enumerate(rng.integers(0, len(whole), 12)):
        cut = folder / f"cut-{k}.tfrecord"
        cut.write_bytes(whole[:at])
        bad = bytearray(whole)
        bad[at] ^= 1 << k % 8
        flipped = folder / f"flipped-{k}.tfrecord"
        flipped.write_bytes(bad)
        damaged |= {path.name: read(path) for path in (cut, flipped)}
    (folder / "contents.pickle").write_bytes(pickle.dumps((contents, damaged)))


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
