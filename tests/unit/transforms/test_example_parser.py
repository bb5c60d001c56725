"""Tests of ParseExample, compared with TensorFlow and protobuf."""

import concurrent.futures
import os
import pickle
import struct

import google.protobuf.message
import google.protobuf.unknown_fields
import numpy as np
import pytest
from array_record.python import array_record_module
from hypothesis import assume, given, settings
from hypothesis import example as example_of
from hypothesis import strategies as st

import gristmill
from gristmill import transforms
from gristmill.errors import CorruptRecord
from gristmill.transforms import FixedLen, ParseExample, Ragged, RaggedArray, VarLen
from support import extras
from support.example_samples import (
    BYTES,
    FLOAT,
    INT64,
    bytes_list,
    example,
    field,
    float_list,
    int_list,
    varint,
)

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
tf = extras.tensorflow()


def parse(features, *written, **options):
    return ParseExample(features, **options).map(example(*written))


def assert_same(found, expected):
    """Check that types, dtypes, shapes and bits are equal."""
    assert type(found) is type(expected)
    if isinstance(expected, dict):
        assert list(found) == list(expected)
        for name in expected:
            assert_same(found[name], expected[name])
    elif isinstance(expected, np.ndarray | np.generic):
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
        if found.dtype == object:
            assert found.tolist() == expected.tolist()
        else:
            assert found.tobytes() == expected.tobytes()
    else:
        assert found == expected


def by_protobuf(record):
    """Return protobuf's result in the form of ParseExample() without features."""
    message = tf.train.Example.FromString(record).features
    # Unlike in C++, protobuf in Python drops entries that have unknown fields.
    dropped = google.protobuf.unknown_fields.UnknownFieldSet(message)
    assume(all(part.field_number != 1 for part in dropped))
    features = message.feature
    out = {}
    for name in sorted(features):
        kind = features[name].WhichOneof("kind")
        if kind == "int64_list":
            out[name] = np.array(features[name].int64_list.value, np.int64)
        elif kind == "float_list":
            out[name] = np.array(features[name].float_list.value, np.float32)
        elif kind == "bytes_list":
            values = features[name].bytes_list.value
            out[name] = np.empty(len(values), object)
            out[name][:] = list(values)
    return out


def quieted(features):
    """Convert float32 to Python floats and back, like protobuf, for equal NaNs."""
    return {
        name: values.astype(np.float64).astype(np.float32)
        if values.dtype == np.float32
        else values
        for name, values in features.items()
    }


# Lists in all encodings: packed, not packed, in pieces, and with unknown fields.
ints = st.integers(-(2**63), 2**63 - 1) | st.integers(-3, 300)
floats = st.floats(width=32, allow_nan=False)
unknown = st.one_of(
    st.builds(lambda n, v: varint(n << 3) + varint(v), st.integers(4, 99), ints),
    st.builds(lambda n, d: field(n, d), st.integers(4, 99), st.binary(max_size=5)),
    st.builds(
        lambda n, d: varint(n << 3 | 5) + d, st.integers(4, 99), st.just(b"abcd")
    ),
    st.builds(lambda n: varint(n << 3 | 1) + bytes(8), st.integers(4, 99)),
)


def in_pieces(piece):
    return st.lists(piece | unknown, max_size=4).map(b"".join)


INT_PIECES = in_pieces(
    st.lists(ints, max_size=12).map(lambda v: field(1, b"".join(map(varint, v))))
    | ints.map(lambda v: varint(1 << 3) + varint(v))
)
FLOAT_PIECES = in_pieces(
    st.lists(floats, max_size=6).map(lambda v: field(1, struct.pack(f"<{len(v)}f", *v)))
    | floats.map(lambda v: varint(1 << 3 | 5) + struct.pack("<f", v))
)
BYTES_PIECES = in_pieces(st.binary(max_size=9).map(lambda v: field(1, v)))
FEATURES = in_pieces(
    BYTES_PIECES.map(lambda p: field(BYTES, p))
    | FLOAT_PIECES.map(lambda p: field(FLOAT, p))
    | INT_PIECES.map(lambda p: field(INT64, p))
)
NAMES = st.sampled_from(["", "a", "b", "label", "image/encoded", "ü" * 9])
# Without unknown fields, see by_protobuf.
ENTRIES = st.lists(
    NAMES.map(lambda n: field(1, n.encode())) | FEATURES.map(lambda f: field(2, f)),
    max_size=4,
).map(b"".join)
RECORDS = in_pieces(
    in_pieces(ENTRIES.map(lambda e: field(1, e))).map(lambda f: field(1, f))
)

NAME_WITHOUT_VALUE = field(
    1, field(1, field(1, b"")) + field(16, bytes(5)) * 2 + field(1, field(1, b"label"))
)
CUT_OFF = field(INT64, b"\x0a\x05\1")


class TestAgainstProtobuf:
    @given(RECORDS)
    @settings(max_examples=200)
    def test_all_encodings_match_protobuf(self, record):
        assert_same(ParseExample().map(record), by_protobuf(record))

    @given(RECORDS, st.integers(0, 2**20), st.binary(max_size=3))
    @settings(max_examples=200)
    @example_of(NAME_WITHOUT_VALUE, NAME_WITHOUT_VALUE.index(b"el"), b"\0\x80\x08")
    def test_damaged_records_are_refused_or_read_the_same(self, record, at, patch):
        at %= max(len(record), 1)
        damaged = bytearray(record)
        damaged[at : at + 1] = patch
        try:
            found = ParseExample().map(bytes(damaged))
        except CorruptRecord:
            return
        assert_same(quieted(found), by_protobuf(bytes(damaged)))

    @pytest.mark.parametrize(
        "entries",
        [
            field(1, b"\xff"),
            field(1, b"\xff") + field(1, b"a"),
            field(1, b"a") + field(2, CUT_OFF + field(INT64, b"\2\3\4\5")),
            field(1, b"a") + field(2, CUT_OFF) + field(2, b""),
            field(1, b"a") + field(2, CUT_OFF + bytes_list()),
            field(1, b"a")
            + field(2, field(INT64, field(1, b"\xff" * 11)) + bytes_list()),
        ],
    )
    def test_damage_in_ignored_fields_is_refused(self, entries):
        record = field(1, field(1, entries) + field(1, field(1, b"a")))
        with pytest.raises(google.protobuf.message.DecodeError):
            by_protobuf(record)
        with pytest.raises(CorruptRecord):
            ParseExample().map(record)

    @given(st.binary(max_size=40))
    def test_noise_is_refused_or_read_the_same(self, noise):
        try:
            found = ParseExample().map(noise)
        except CorruptRecord:
            return
        assert_same(quieted(found), by_protobuf(noise))

    @pytest.mark.parametrize("values", [1, 7, 8, 9, 100, 1000])
    @pytest.mark.parametrize("bits", [1, 7, 8, 14, 30, 49, 56, 57, 63, 64])
    def test_integers_of_all_lengths(self, values, bits):
        rng = np.random.default_rng(values * 100 + bits)
        written = rng.integers(0, 2**bits, values, np.uint64).astype(np.int64)
        written[rng.random(values) < 0.3] &= 0xFF
        found = parse({"x": FixedLen(values, np.int64)}, ("x", int_list(*written)))
        assert_same(found["x"], written)

    def test_order_of_features_does_not_matter(self):
        written = [(f"feature/{i}/value", int_list(i)) for i in range(300)]
        features = {name: FixedLen((), np.int64) for name, _ in written}
        expected = {name: np.int64(i) for i, name in enumerate(features)}
        assert_same(parse(features, *written), expected)
        assert_same(parse(features, *reversed(written)), expected)


OF_TENSORFLOW = {
    "parts": tf.io.FixedLenFeature([2, 2], tf.string),
    "label": tf.io.FixedLenFeature((), tf.int64),
    "x": tf.io.FixedLenFeature([3], tf.float32),
    "tokens": tf.io.FixedLenFeature([2, 2], tf.int64),
    "name": tf.io.FixedLenFeature([], tf.string),
    "none": tf.io.FixedLenFeature([2], tf.int64, default_value=[4, 5]),
    "no name": tf.io.FixedLenFeature((), tf.string, default_value="?"),
    "rows": tf.io.FixedLenSequenceFeature([2], tf.int64, allow_missing=True),
}


class TestAgainstTensorFlow:
    WRITTEN = (
        ("label", int_list(-7)),
        ("x", float_list(1.5, -2.0, 3.25)),
        ("tokens", int_list(1, 128, 2**40, 5)),
        ("name", bytes_list(b"a\0b\0")),
        ("parts", bytes_list(b"", b"\xff\0", b"xyz", b"w")),
    )

    def by_tensorflow(self, record, features):
        found = tf.io.parse_single_example(record, features)
        return {name: found[name].numpy() for name in features}

    def test_fixed_features(self):
        record = example(*self.WRITTEN, ("rows", int_list(1, 2, 3, 4)))
        found = ParseExample(OF_TENSORFLOW).map(record)
        assert_same(found, self.by_tensorflow(record, OF_TENSORFLOW))

    def test_result_matches_as_numpy_iterator(self):
        record = example(*self.WRITTEN)
        stream = tf.data.Dataset.from_tensors(record).map(
            lambda r: tf.io.parse_single_example(r, OF_TENSORFLOW)
        )
        (expected,) = stream.as_numpy_iterator()
        expected = {name: expected[name] for name in OF_TENSORFLOW}
        assert_same(ParseExample(OF_TENSORFLOW).map(record), expected)

    @pytest.mark.parametrize("name", ["label", "x", "tokens", "name", "parts", "none"])
    def test_variable_features(self, name):
        dtypes = {"x": tf.float32, "name": tf.string, "parts": tf.string}
        feature = tf.io.VarLenFeature(dtypes.get(name, tf.int64))
        record = example(*self.WRITTEN)
        sparse = tf.io.parse_single_example(record, {name: feature})[name]
        found = ParseExample({name: feature}).map(record)[name]
        assert_same(found, sparse.values.numpy())

    def test_last_feature_with_same_name_is_used(self):
        record = example(("y", int_list(1)), ("y", int_list(2)))
        features = {"y": tf.io.FixedLenFeature((), tf.int64)}
        assert_same(
            ParseExample(features).map(record), self.by_tensorflow(record, features)
        )

    PARTS = (
        ("values", int_list(1, 2, 3, 4, 5, 6)),
        ("splits", int_list(0, 1, 1, 6)),
        ("lengths", int_list(2, 0, 4)),
        ("starts", int_list(0, 4, 4)),
        ("ids", int_list(0, 0, 2, 2, 2, 5)),
        ("outer", int_list(1, 2)),
    )

    @pytest.mark.parametrize(
        "make",
        [
            lambda F: [],
            lambda F: [F.RowSplits("splits")],
            lambda F: [F.RowLengths("lengths")],
            lambda F: [F.RowStarts("starts")],
            lambda F: [F.ValueRowIds("ids")],
            lambda F: [F.UniformRowLength(3)],
            lambda F: [F.UniformRowLength(3), F.UniformRowLength(2)],
            lambda F: [F.RowLengths("outer"), F.RowLengths("lengths")],
            lambda F: [F.UniformRowLength(3), F.RowLengths("lengths")],
            lambda F: [F.RowLengths("outer"), F.UniformRowLength(2)],
        ],
    )
    @pytest.mark.parametrize("dtype", ["int32", "int64"])
    def test_ragged_features(self, make, dtype):
        record = example(*self.PARTS)
        theirs = tf.io.RaggedFeature(
            tf.int64,
            "values",
            make(tf.io.RaggedFeature),
            row_splits_dtype=getattr(tf, dtype),
        )
        expected = tf.io.parse_single_example(record, {"r": theirs})["r"]
        ours = Ragged(np.int64, "values", make(Ragged), dtype)
        for feature in (theirs, ours):
            found = ParseExample({"r": feature}).map(record)["r"]
            self.assert_ragged(found, expected)

    def assert_ragged(self, found, expected):
        if isinstance(expected, tf.RaggedTensor):
            assert type(found) is RaggedArray
            assert_same(found.row_splits, expected.row_splits.numpy())
            self.assert_ragged(found.values, expected.values)
        else:
            assert_same(found, expected.numpy())

    def test_ragged_features_next_to_others(self):
        features = {
            "values": VarLen(np.int64),
            "bytes": Ragged(bytes, partitions=[Ragged.RowLengths("lengths")]),
            "outer": Ragged(np.float32, None, [Ragged.RowLengths("outer")]),
        }
        with pytest.raises(CorruptRecord, match=r"feature 'outer' .* expected float"):
            parse(features, *self.PARTS)
        features["outer"] = Ragged(np.int64, "values", [Ragged.RowLengths("lengths")])
        written = bytes_list(*(bytes([i]) for i in range(6)))
        found = parse(features, *self.PARTS, ("bytes", written))
        assert list(found) == ["values", "bytes", "outer"]
        assert found["outer"].values.tolist() == found["values"].tolist()
        assert found["bytes"].row_splits.tolist() == [0, 2, 2, 6]
        assert found["bytes"].values.tolist() == [bytes([i]) for i in range(6)]


class TestDtypes:
    @pytest.mark.parametrize("dtype", ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"])
    def test_integers_are_narrowed_if_they_fit(self, dtype):
        limits = np.iinfo(dtype)
        highest = min(limits.max, 2**63 - 1)
        values = [limits.min, 0, 1, highest] * 5
        found = parse({"x": FixedLen(20, dtype)}, ("x", int_list(*values)))
        assert_same(found["x"], np.array(values, dtype))
        for misfit in (limits.min - 1, highest + 1):
            if -(2**63) <= misfit < 2**63:
                with pytest.raises(CorruptRecord, match=r"out of range for u?int"):
                    parse({"x": VarLen(dtype)}, ("x", int_list(0, misfit)))

    def test_booleans_are_zero_or_one(self):
        features = {"x": VarLen(bool)}
        found = parse(features, ("x", int_list(0, 1, 1, 0, 1, 0, 0, 0, 1)))
        assert found["x"].tolist() == [False, True, True] + [False, True] + [
            False
        ] * 3 + [True]
        for values in ([2], [0] * 8 + [2] * 8):
            with pytest.raises(CorruptRecord, match="out of range for bool"):
                parse(features, ("x", int_list(*values)))

    @pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
    def test_floats_are_rounded_as_numpy_does(self, dtype):
        rng = np.random.default_rng(0)
        halves = np.arange(2**16, dtype=np.uint16).view(np.float16)
        near = halves[np.isfinite(halves)].astype(np.float32)
        ties = (near[:-1] + near[1:]) / 2
        noise = rng.integers(0, 2**32, 100_000, np.uint32).view(np.float32)
        others = np.array([np.inf, -np.inf, np.nan, 2**-149], np.float32)
        values = np.concatenate(
            (near, ties, np.nextafter(ties, np.float32(0)), noise, others)
        )
        with np.errstate(over="ignore", invalid="ignore"):
            expected = values.astype(dtype)
        fits = np.isfinite(expected) | ~np.isfinite(values)
        values, expected = values[fits], expected[fits]
        written = field(FLOAT, field(1, values.tobytes()))
        found = parse({"x": VarLen(dtype)}, ("x", written))["x"]
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))
        kept = ~np.isnan(expected)
        assert found[kept].tobytes() == expected[kept].tobytes()

    def test_halves_do_not_become_infinite(self):
        with pytest.raises(CorruptRecord, match="out of range for float16"):
            parse({"x": VarLen(np.float16)}, ("x", float_list(65520)))

    @pytest.mark.parametrize("dtype", [bytes, object, "bytes", np.bytes_, tf.string])
    def test_all_names_of_bytes_are_accepted(self, dtype):
        assert parse({"x": FixedLen((), dtype)}, ("x", bytes_list(b"v"))) == {"x": b"v"}

    @pytest.mark.parametrize("dtype", ["c8", "U", "M8[s]", ">i8", "f16", None])
    def test_other_dtypes_are_refused(self, dtype):
        with pytest.raises(TypeError, match="dtype must be"):
            VarLen(dtype)


class TestArrays:
    def test_changing_results_does_not_affect_next_record(self):
        features = {
            "x": FixedLen(2, np.int64, default=7),
            "b": FixedLen(2, bytes, default=b"\0x\0"),
            "v": VarLen(np.float32),
        }
        parser = ParseExample(features)
        first = parser.map(example(("v", float_list(1))))
        assert all(array.flags.writeable for array in first.values())
        for array in first.values():
            array[:] = 0
        second = parser.map(example())
        assert second["x"].tolist() == [7, 7]
        assert second["b"].tolist() == [b"\0x\0"] * 2
        assert second["v"].shape == (0,)

    def test_shape_of_rows_is_applied(self):
        found = parse({"x": VarLen(np.int64, (2, 1))}, ("x", int_list(1, 2, 3, 4)))
        assert found["x"].tolist() == [[[1], [2]], [[3], [4]]]
        assert parse({"x": VarLen(bytes, (2, 1))})["x"].shape == (0, 2, 1)

    @pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
    def test_records_are_any_buffer(self, kind):
        record = kind(example(("x", int_list(3))))
        assert ParseExample({"x": FixedLen((), np.int64)}).map(record) == {"x": 3}

    def test_threads_parse_in_parallel(self):
        tokens = np.arange(100_000)
        parser = ParseExample({"x": VarLen(np.int64)})
        records = [example(("x", int_list(*(tokens + i)))) for i in range(8)]
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            for i, found in enumerate(pool.map(parser.map, records)):
                assert_same(found["x"], tokens + i)


X_AND_Y = {"x": FixedLen(3, np.float32), "y": FixedLen((), np.int64)}


class TestErrors:
    def message(self, *written, features=X_AND_Y, **options):
        with pytest.raises(CorruptRecord) as caught:
            parse(features, *written, **options)
        assert isinstance(caught.value, gristmill.errors.GristmillError)
        return str(caught.value)

    def test_missing_feature_is_named(self):
        assert self.message(("x", float_list(1, 2, 3))) == (
            "feature 'y' is missing and has no default. Set a default, or use VarLen,"
            " which returns an empty array"
        )

    def test_feature_of_wrong_kind_is_named(self):
        assert self.message(("x", int_list(1, 2, 3))) == (
            "feature 'x' (at byte 4): it has a list of int64 values, expected float"
            " values"
        )

    @pytest.mark.parametrize("count", [0, 2, 4, 40])
    def test_wrong_number_of_values_is_refused(self, count):
        message = self.message(("x", float_list(*range(count))))
        assert message.startswith("feature 'x' (at byte ")
        assert message.endswith(f"): it has {count} values, expected 3")

    @pytest.mark.parametrize("feature", [FixedLen(2, bytes), FixedLen(2, np.int64)])
    def test_wrong_number_of_bytes_or_ints_is_refused(self, feature):
        one = bytes_list(b"v") if feature.dtype == object else int_list(1)
        expected = "feature 'x' (at byte 4): it has 1 values, expected 2"
        assert self.message(("x", one), features={"x": feature}) == expected

    def test_partial_row_is_refused(self):
        assert self.message(("x", int_list(1)), features={"x": VarLen("i8", 2)}) == (
            "feature 'x' (at byte 4): it has 1 values, expected a multiple of 2"
        )

    def test_unrequested_feature_can_be_refused(self):
        given_, features = ("z", int_list(1)), {"y": VarLen(np.int64)}
        assert self.message(given_, features=features, unknown="raise") == (
            "the record has a feature 'z', which was not requested"
        )
        assert parse(features, given_)["y"].size == 0

    def test_truncated_record_is_refused(self):
        record = example(("x", float_list(1, 2, 3)), ("y", int_list(5)))
        parser = ParseExample(X_AND_Y)
        for size in range(len(record)):
            with pytest.raises(CorruptRecord):
                parser.map(record[:size])
        with pytest.raises(CorruptRecord) as caught:
            parser.map(record[:-1])
        assert str(caught.value) == (
            "this is not a tf.train.Example, or only part of one: the field at byte 0"
            f" of {len(record) - 1} cannot be read"
        )

    def test_truncated_list_is_refused(self):
        half = field(INT64, field(1, b"\x81"))
        for feature in (FixedLen((), np.int64), VarLen(np.int64)):
            expected = "feature 'x' (at byte 4): its int64 list is damaged"
            assert self.message(("x", half), features={"x": feature}) == expected

    def test_name_that_is_not_utf_8_is_refused(self):
        record = field(1, field(1, field(1, b"\xff") + field(2, int_list(1))))
        with pytest.raises(CorruptRecord, match=r"'\\xff' .* its name is not UTF-8"):
            ParseExample().map(record)

    @pytest.mark.parametrize("record", ["text", 3, None, [b""]])
    def test_record_of_wrong_type_is_refused(self, record):
        with pytest.raises(TypeError, match="a record must be bytes, got"):
            ParseExample().map(record)

    @pytest.mark.parametrize(
        ("partition", "told"),
        [
            (Ragged.RowSplits("p"), [0, 2]),
            (Ragged.RowSplits("p"), [1, 3]),
            (Ragged.RowSplits("p"), [0, 2, 1, 3]),
            (Ragged.RowLengths("p"), [1]),
            (Ragged.RowLengths("p"), [4, -1]),
            (Ragged.RowLengths("p"), [2**62] * 4),
            (Ragged.RowStarts("p"), [1]),
            (Ragged.RowStarts("p"), [0, 4]),
            (Ragged.RowStarts("p"), []),
            (Ragged.ValueRowIds("p"), [0, 1]),
            (Ragged.ValueRowIds("p"), [0, 2, 1]),
            (Ragged.ValueRowIds("p"), [-1, 0, 1]),
            (Ragged.ValueRowIds("p"), [0, 1, 2**62]),
            (Ragged.UniformRowLength(2), []),
        ],
    )
    def test_invalid_partition_is_refused(self, partition, told):
        features = {"x": Ragged(np.int64, None, [partition])}
        written = [("x", int_list(1, 2, 3)), ("p", int_list(*told))]
        assert self.message(*written, features=features).startswith(
            f"feature 'x', divided by {partition}: "
        )

    @pytest.mark.parametrize(
        ("features", "error", "text"),
        [
            ([], TypeError, "features must be a dict.*, got list"),
            ({"x": np.int64}, TypeError, r"features\['x'\] must be .* got type"),
            (
                {"x": tf.io.SparseFeature("i", "v", tf.int64, 3)},
                TypeError,
                "Read its indices and values as two VarLen",
            ),
            (
                {"x": tf.io.FixedLenFeature([None], tf.int64)},
                ValueError,
                r"features\['x'\]: shape must .* got \(None,\)",
            ),
            (
                {"x": tf.io.FixedLenSequenceFeature([], tf.int64)},
                ValueError,
                "allow_missing must be True, got False",
            ),
            (
                {"x": tf.io.FixedLenFeature([3], tf.int64, [1, 2])},
                ValueError,
                r"default .* shape, \(3,\), .* got shape \(2,\)",
            ),
            ({"x": tf.io.VarLenFeature(tf.complex64)}, TypeError, "dtype must be"),
        ],
    )
    def test_bad_features_are_refused(self, features, error, text):
        with pytest.raises(error, match=text):
            ParseExample(features)

    def test_other_bad_arguments_are_refused(self):
        with pytest.raises(ValueError, match=r"unknown must be .* got 'no'"):
            ParseExample({}, unknown="no")
        with pytest.raises(ValueError, match="needs features"):
            ParseExample(unknown="raise")
        with pytest.raises(TypeError, match=r"partition must be .* got str"):
            Ragged(np.int64, None, ["lengths"])
        with pytest.raises(ValueError, match=r"UniformRowLength must be .* got 0"):
            Ragged(np.int64, None, [Ragged.UniformRowLength(0)])
        with pytest.raises(TypeError, match=r"default .* must be bytes, got int"):
            FixedLen((), bytes, default=3)


def block(records):
    sizes = [len(record) for record in records]
    data = np.frombuffer(b"".join(records), np.uint8)
    return data, np.concatenate(([0], np.cumsum(sizes))).astype(np.int64)


OF_NUMBERS = {
    "z": FixedLen((), np.int16),
    "a": FixedLen((2, 3), np.float32),
    "flag": FixedLen(1, bool, default=True),
    "nothing": FixedLen((0,), np.int64),
}


class TestBlocks:
    def records(self, count):
        for i in range(count):
            flag = [("flag", int_list(0))] if i % 2 else []
            yield example(
                ("nothing", int_list()),
                ("a", float_list(*range(i, i + 6))),
                *flag,
                ("z", int_list(i - 3)),
            )

    @pytest.mark.parametrize("count", [0, 1, 2, 50])
    @pytest.mark.parametrize("rules", ["jax", "plain"])
    def test_block_matches_stacked_records(self, count, rules):
        parser = ParseExample(OF_NUMBERS)
        assert parser.decodes_blocks
        records = list(self.records(count))
        made = []

        def alloc(shape, dtype):
            made.append(np.full(shape, 99, dtype))
            return made[-1]

        found = parser.decode_block(*block(records), alloc, rules)
        names = sorted(OF_NUMBERS) if rules == "jax" else OF_NUMBERS
        assert list(found) == list(names)
        assert all(a is b for a, b in zip(made, found.values(), strict=True))
        assert_same(parser.decode_block(*block(records), rules=rules), found)
        if count:
            mapped = [parser.map(record) for record in records]
            expected = {n: np.stack([m[n] for m in mapped]) for n in names}
            assert_same(found, expected)

    def test_block_may_begin_at_any_offset(self):
        data, offsets = block([b"noise", *self.records(3)])
        parser = ParseExample(OF_NUMBERS)
        found = parser.decode_block(data, offsets[1:])
        assert found["z"].tolist() == [-3, -2, -1]

    def test_error_names_record_of_block(self):
        records = list(self.records(5))
        records[3] = example(("z", bytes_list(b"1")))
        parser = ParseExample(OF_NUMBERS)
        with pytest.raises(CorruptRecord) as alone:
            parser.map(records[3])
        with pytest.raises(CorruptRecord) as caught:
            parser.decode_block(*block(records))
        assert (caught.value.position, alone.value.position) == (3, None)
        assert str(caught.value) == str(alone.value)

    @pytest.mark.claim("Custom steps other than BlockMap process one record at a time.")
    @pytest.mark.parametrize(
        "features", [None, {"x": VarLen(np.int64)}, {"x": FixedLen((), bytes)}]
    )
    def test_block_requires_features_of_fixed_shape(self, features):
        parser = ParseExample(features)
        assert not parser.decodes_blocks
        with pytest.raises(TypeError, match="decode_block needs features"):
            parser.decode_block(*block([b""]))

    def test_subclass_with_map_does_not_decode_blocks(self):
        class Doubled(ParseExample):
            def map(self, element):
                return {name: 2 * x for name, x in super().map(element).items()}

        assert not Doubled(OF_NUMBERS).decodes_blocks

    @pytest.mark.parametrize("offsets", [[], [0, 9], [-1, 2], [2, 1], [[0, 2]]])
    def test_offsets_are_checked(self, offsets):
        data = np.zeros(4, np.uint8)
        parser = ParseExample(OF_NUMBERS)
        with pytest.raises(ValueError, match="offsets must"):
            parser.decode_block(data, np.array(offsets, np.int64))

    @pytest.mark.parametrize(
        "alloc",
        [
            lambda shape, dtype: np.zeros(shape, "c16"),
            lambda shape, dtype: np.zeros((1, *shape), dtype),
            lambda shape, dtype: np.broadcast_to(np.zeros((), dtype), shape),
        ],
    )
    def test_arrays_are_checked(self, alloc):
        parser = ParseExample(OF_NUMBERS)
        with pytest.raises(ValueError, match="alloc must return"):
            parser.decode_block(*block(list(self.records(3))), alloc)


FEATURES = {
    "y": FixedLen((), np.int32),
    "x": FixedLen(2, np.float32, default=[0, 0.5]),
    "name": FixedLen((), bytes, default=b"?"),
    "rows": Ragged(np.int64, "values", [Ragged.RowLengths("lengths")], np.int32),
    "all": VarLen(np.int8, 2),
}


def test_pickle_and_repr_keep_arguments():
    parser = ParseExample(FEATURES, unknown="raise")
    again = pickle.loads(pickle.dumps(parser))
    record = example(
        ("y", int_list(4)), ("values", int_list(1)), ("lengths", int_list(1))
    )
    found, expected = again.map(record), parser.map(record)
    assert repr(found) == repr(expected)
    assert (
        repr(again)
        == repr(parser)
        == (
            "ParseExample({'y': FixedLen((), 'int32'), 'x': FixedLen((2,), 'float32',"
            " default=(0.0, 0.5)), 'name': FixedLen((), bytes, default=b'?'), 'rows':"
            " Ragged('int64', 'values', [RowLengths(key='lengths')],"
            " row_splits_dtype='int32'), 'all': VarLen('int8', shape=(2,))},"
            " unknown='raise')"
        )
    )
    assert repr(ParseExample()) == "ParseExample(None)"


def test_repr_of_tensorflow_features_matches_ours():
    theirs = {
        "x": tf.io.FixedLenFeature([2], tf.float32, [0, 0.5]),
        "y": tf.io.VarLenFeature(tf.string),
    }
    ours = {"x": FixedLen(2, np.float32, (0, 0.5)), "y": VarLen(bytes)}
    assert repr(ParseExample(theirs)) == repr(ParseExample(ours))


def loader(records, features, workers):
    return gristmill.DataLoader(
        data_source=records,
        sampler=gristmill.SequentialSampler(len(records)),
        operations=[ParseExample(features), transforms.Batch(4)],
        worker_count=workers,
    )


@pytest.mark.parametrize(
    "workers", [0, pytest.param(2, marks=pytest.mark.multiprocess)]
)
def test_loader_parses_records(workers):
    features = {"y": FixedLen((), np.int32), "x": FixedLen(2, np.float32)}
    records = [example(("x", float_list(i, -i)), ("y", int_list(i))) for i in range(16)]
    batches = list(loader(records, features, workers))
    assert sorted(np.concatenate([b["y"] for b in batches])) == list(range(16))
    assert all(b["x"].dtype == np.float32 and b["x"].shape == (4, 2) for b in batches)
    assert all((b["x"][:, 0] == b["y"]).all() for b in batches)


@pytest.mark.parametrize(
    "workers", [0, pytest.param(2, marks=pytest.mark.multiprocess)]
)
def test_errors_in_a_loader_name_the_record(workers):
    records = [example(("y", int_list(i))) for i in range(8)]
    records[5] = b"noise"
    with pytest.raises(CorruptRecord, match=r"not a tf\.train\.Example") as caught:
        list(loader(records, {"y": FixedLen((), np.int32)}, workers))
    assert any("ParseExample" in n and "record 5" in n for n in caught.value.__notes__)


def written(tmp_path, records):
    path = str(tmp_path / "examples.array_record")
    writer = array_record_module.ArrayRecordWriter(path, "group_size:1")
    for record in records:
        writer.write(record)
    writer.close()
    return gristmill.ArrayRecordDataSource(path)


@pytest.mark.parametrize(
    "workers", [0, pytest.param(2, marks=pytest.mark.multiprocess)]
)
def test_records_of_file_match_list(tmp_path, workers):
    features = {"y": FixedLen((), np.int32), "x": FixedLen(2, np.float32)}
    records = [example(("x", float_list(i, -i)), ("y", int_list(i))) for i in range(50)]
    source = written(tmp_path, records)
    found = list(loader(source, features, workers))
    expected = list(loader(records, features, workers))
    assert_same(dict(enumerate(found)), dict(enumerate(expected)))


def test_errors_in_a_file_name_the_record(tmp_path):
    records = [example(("y", int_list(i))) for i in range(12)]
    records[6] = example(("y", int_list(2**40)))
    batches = iter(loader(written(tmp_path, records), {"y": FixedLen((), "i4")}, 0))
    assert next(batches)["y"].tolist() == [0, 1, 2, 3]
    with pytest.raises(CorruptRecord, match=r"feature 'y'.*out of range") as caught:
        next(batches)
    assert any("ParseExample" in n and "record 6" in n for n in caught.value.__notes__)


@pytest.mark.parametrize("shape", [(2**32, 2**32), (0,), (3, 0)])
def test_rows_must_have_a_size(shape):
    with pytest.raises(ValueError, match="shape"):
        ParseExample({"x": VarLen(np.int64, shape)})
