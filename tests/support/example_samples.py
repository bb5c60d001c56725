"""Messages of tf.train.Example, encoded by hand."""

import struct

from support import protobuf_samples

BYTES, FLOAT, INT64 = 1, 2, 3


def varint(value):
    """Encode an int64 as a varint; negative ones take ten bytes."""
    return protobuf_samples.varint(int(value) % 2**64)


def field(number, data):
    return varint(number << 3 | 2) + varint(len(data)) + data


def int_list(*values):
    return field(INT64, field(1, b"".join(map(varint, values))))


def float_list(*values):
    return field(FLOAT, field(1, struct.pack(f"<{len(values)}f", *values)))


def bytes_list(*values):
    return field(BYTES, b"".join(field(1, value) for value in values))


def entry(name, feature):
    return field(1, field(1, name.encode()) + field(2, feature))


def example(*features):
    """Encode features, each a pair of a name and the result of a list function."""
    return field(1, b"".join(entry(name, feature) for name, feature in features))
