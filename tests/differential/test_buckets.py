"""Batches of similar lengths equal those of tf.data, in the same order."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import gristmill as g
from support import extras

extras.need_tensorflow()

ASK = g.ReadOptions(0, 0)


def sequences(lengths):
    return [
        {"x": np.arange(1, length + 1, dtype=np.int32), "y": np.float32(number)}
        for number, length in enumerate(lengths)
    ]


def of_tf_data(lengths, boundaries, sizes, **how):
    # Imported here, because TensorFlow makes each fork of this process slower.
    tf = extras.tensorflow()
    signature = {
        "x": tf.TensorSpec([None], tf.int32),
        "y": tf.TensorSpec([], tf.float32),
    }
    ds = tf.data.Dataset.from_generator(
        lambda: iter(sequences(lengths)), output_signature=signature
    )
    ds = ds.bucket_by_sequence_length(
        lambda element: tf.shape(element["x"])[0], boundaries, sizes, **how
    )
    return list(ds.as_numpy_iterator())


def ours(lengths, boundaries, sizes, **how):
    ds = g.MapDataset.source(sequences(lengths)).to_iter_dataset(ASK)
    return list(
        ds.bucket_by_sequence_length(
            lambda element: len(element["x"]), boundaries, sizes, **how
        )
    )


def assert_same(found, expected):
    assert len(found) == len(expected)
    for mine, theirs in zip(found, expected, strict=True):
        assert mine.keys() == theirs.keys()
        for name, leaf in mine.items():
            np.testing.assert_array_equal(leaf, theirs[name], strict=True)


@settings(max_examples=12, deadline=None)
@given(
    lengths=st.lists(st.integers(0, 12), max_size=25),
    boundaries=st.lists(st.integers(1, 13), max_size=3, unique=True).map(sorted),
    drop_remainder=st.booleans(),
    padding=st.sampled_from([None, 7]),
    data=st.data(),
)
def test_batches_equal_tf_data(lengths, boundaries, drop_remainder, padding, data):
    count = len(boundaries) + 1
    sizes = data.draw(st.lists(st.integers(1, 4), min_size=count, max_size=count))
    values = {}
    if padding is not None:
        values = {"padding_values": {"x": np.int32(padding), "y": np.float32(0)}}
    how = {"drop_remainder": drop_remainder, **values}
    expected = of_tf_data(lengths, boundaries, sizes, **how)
    assert_same(ours(lengths, boundaries, sizes, **how), expected)


def test_padding_to_the_boundary_equals_tf_data():
    how = {"pad_to_bucket_boundary": True}
    lengths, sizes = [1, 5, 3, 6, 0, 2], [2, 2, 1]
    expected = of_tf_data(lengths, [4, 7], sizes, **how)
    assert [batch["x"].shape for batch in expected] == [(2, 3), (2, 6), (2, 3)]
    numbers = {"element_length_func": len, "bucket_boundaries": [4, 7]}
    rows = [element["x"] for element in sequences(lengths)]
    ds = g.MapDataset.source(rows).bucket_by_sequence_length(
        **numbers, bucket_batch_sizes=sizes, **how
    )
    for found, theirs in zip(ds, expected, strict=True):
        np.testing.assert_array_equal(found, theirs["x"], strict=True)
