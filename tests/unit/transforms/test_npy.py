"""Tests that DecodeNpy matches numpy.load, and refuses damaged files."""

import io
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_np

import gristmill
from gristmill.errors import CorruptRecord
from gristmill.transforms import Batch, DecodeNpy


def saved(array, version=None):
    file = io.BytesIO()
    np.lib.format.write_array(file, np.asanyarray(array), version)
    return file.getvalue()


def with_header(text, data=b""):
    """Return a file of version 1.0 with this header."""
    header = text.encode("latin1")
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + data


def assert_same(found, expected):
    assert type(found) is np.ndarray
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    assert found.strides == expected.strides or not found.size
    assert found.tobytes() == expected.tobytes()
    assert found.flags.writeable and found.flags.owndata


ARRAYS = [
    np.arange(6, dtype=np.int64).reshape(2, 3),
    np.arange(24, dtype=">f4").reshape(2, 3, 4).T,
    np.asfortranarray(np.arange(6, dtype=np.uint8).reshape(2, 3)),
    np.array(3.5),
    np.zeros((0, 3), np.float16),
    np.zeros((3, 0), np.float32, order="F"),
    np.array([True, False]),
    np.array([1 + 2j]),
    np.array(["a", "ü", "long"]),
    np.array([b"a", b"\0b"]),
    np.array(["2020-01-01", "NaT"], "M8[D]"),
    np.array([(1, [2.5, 3]), (4, [5, 6])], [("x", "<i2"), ("y", ">f8", 2)]),
    np.zeros(2, [("ä", np.int32)]),
    np.zeros(2, "V3"),
    np.arange(10)[::2],
]


@pytest.mark.parametrize("version", [None, (1, 0), (2, 0), (3, 0)])
@pytest.mark.parametrize("array", ARRAYS, ids=lambda a: f"{a.dtype}{a.shape}")
def test_saved_arrays_match_numpy_load(array, version):
    if array.dtype.names == ("ä",):
        version = (3, 0)  # The first version with such names.
    file = saved(array, version)
    assert_same(DecodeNpy().map(file), np.load(io.BytesIO(file)))


@given(
    st_np.arrays(
        st_np.scalar_dtypes() | st_np.array_dtypes(),
        st_np.array_shapes(min_dims=0, min_side=0),
    ),
    st.booleans(),
)
@settings(max_examples=50)
def test_any_array_matches_numpy_load(array, fortran):
    # Names of fields may need version 3.0.
    file = saved(np.asfortranarray(array) if fortran else array, (3, 0))
    assert_same(DecodeNpy().map(file), np.load(io.BytesIO(file)))


def test_python_2_header_is_decoded():
    text = "{'descr': '<i8', 'fortran_order': False, 'shape': (2L, 1L), }\n"
    found = DecodeNpy().map(with_header(text, bytes(16)))
    assert_same(found, np.zeros((2, 1), np.int64))


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_records_are_any_buffer(kind):
    file = saved(np.arange(3))
    assert DecodeNpy().map(kind(file)).tolist() == [0, 1, 2]
    assert DecodeNpy().map(np.frombuffer(file, np.uint8)).tolist() == [0, 1, 2]


FILE = saved(np.arange(6, dtype=np.float32).reshape(2, 3))
HEADER = "{{'descr': {}, 'fortran_order': {}, 'shape': {}}}"


@pytest.mark.parametrize(
    ("file", "text"),
    [
        (b"", r"begin with b'\\x93NUMPY', got 0 bytes"),
        (b"PK" + FILE[2:], r"begin with b'\\x93NUMPY', got .* b'PKUMPY'"),
        (FILE[:9], "at least 12 bytes, got 9"),
        (FILE[:50], "at least 128 bytes, .* header, got 50"),
        (FILE[:-1], r"24 bytes of data for shape \(2, 3\) of float32, got 23"),
        (FILE + b"\0", r"24 bytes of data for shape \(2, 3\) of float32, got 25"),
        (FILE[:6] + b"\4" + FILE[7:], r"version \(1, 0\) or .*, got \(4, 0\)"),
        (
            FILE[:8] + b"\xff\xff" + FILE[10:],
            "a header of at most 10000 bytes, got 65535",
        ),
        (with_header("noise"), "damaged header"),
        (with_header("[]"), "damaged header"),
        (with_header("{'shape': (1,)}"), "damaged header: it has the fields shape"),
        (
            with_header(HEADER.format("'i4'", "0", "(1,)")),
            "fortran_order is not a bool",
        ),
        (with_header(HEADER.format("'i4'", "True", "1")), "shape is not a tuple"),
        (
            with_header(HEADER.format("'i4'", "True", "(-1, -1)")),
            r"shape is \(-1, -1\)",
        ),
        (with_header(HEADER.format("'q9'", "True", "()")), "damaged header"),
        (with_header(HEADER.format("[1]", "True", "()")), "damaged header"),
        (with_header(HEADER.format("'i1'", "True", "(0,) * 9")), "damaged header"),
        (with_header(HEADER.format("'i1'", "True", "(0, 2**70)")), "damaged header"),
        (with_header(HEADER.format("'i1'", "True", f"(0, {2**70})")), "has shape"),
        (
            with_header(HEADER.format("'i1'", "True", f"({2**62},)")),
            "bytes of data .* got 0",
        ),
    ],
)
def test_invalid_files_are_refused(file, text):
    with pytest.raises(CorruptRecord, match=text):
        DecodeNpy().map(file)


@given(st.data())
@settings(max_examples=100)
def test_damaged_files_are_refused_or_match_numpy(data):
    damaged = bytearray(FILE)
    at = data.draw(st.integers(0, 130))
    damaged[at : at + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=3))
    try:
        found = DecodeNpy().map(damaged)
    except CorruptRecord:
        return
    assert_same(found, np.load(io.BytesIO(damaged)))


def test_objects_are_never_loaded():
    class Trap:
        def __reduce__(self):
            return pytest.fail, ("unpickled",)

    file = saved(np.array([Trap()], object))
    with pytest.raises(CorruptRecord, match=r"dtype object, whose objects are pickled"):
        DecodeNpy().map(file)


class TestKey:
    def test_key_selects_one_field(self):
        element = {"name": b"x", "array": saved(np.arange(2))}
        found = DecodeNpy(key="array").map(element)
        assert list(found) == ["name", "array"]
        assert (found["name"], found["array"].tolist()) == (b"x", [0, 1])
        assert type(element["array"]) is bytes

    def test_errors_name_fields_and_types(self):
        with pytest.raises(KeyError, match=r"has no field 'x', only 'a', 'b'"):
            DecodeNpy(key="x").map({"a": 1, "b": 2})
        with pytest.raises(TypeError, match="needs a dict, got bytes"):
            DecodeNpy(key="x").map(b"")
        with pytest.raises(TypeError, match=r"needs bytes, got dict.*name it by key="):
            DecodeNpy().map({"a": b""})
        with pytest.raises(
            TypeError, match=r"DecodeNpy\(key='a'\) needs bytes, got str"
        ):
            DecodeNpy(key="a").map({"a": "text"})
        with pytest.raises(TypeError, match="key must be a str or None, got int"):
            DecodeNpy(key=1)


def block(files):
    data = np.frombuffer(b"noise" + b"".join(files), np.uint8)
    offsets = 5 + np.concatenate(([0], np.cumsum([len(file) for file in files])))
    return data, offsets.astype(np.int64)


class TestBlocks:
    @pytest.mark.parametrize("count", [1, 2, 9])
    @pytest.mark.parametrize(
        ("shape", "dtype"),
        [((), "i4"), ((3,), "f8"), ((2, 3), "?"), ((2, 0), "f4"), ((2,), "M8[s]")],
    )
    def test_block_matches_stacked_arrays(self, count, shape, dtype):
        rng = np.random.default_rng(0)
        arrays = [rng.integers(0, 2, shape).astype(dtype) for _ in range(count)]
        files = [saved(array) for array in arrays]
        expected = np.stack([DecodeNpy().map(file) for file in files])
        made = []

        def alloc(shape, dtype):
            made.append(np.empty(shape, dtype))
            return made[-1]

        assert DecodeNpy().decodes_blocks
        found = DecodeNpy().decode_block(*block(files), alloc, "jax")
        assert found is made[0]
        for out in (found, DecodeNpy().decode_block(*block(files))):
            assert (out.dtype, out.shape) == (expected.dtype, expected.shape)
            assert out.tobytes() == expected.tobytes()

    @pytest.mark.parametrize(
        "files",
        [
            [],
            [b""],
            [saved([1]), saved([1, 2])],
            [saved([1]), saved([1.0])],
            [saved([1]), saved([1])[:-1] + b"", b"?"],
            [saved(np.zeros((2, 2), order="F"))] * 2,
            [saved(np.zeros(2, ">i4"))] * 2,
            [saved(["text"])] * 2,
            [saved([1])[:-1]] * 2,
            [bytes(200)] * 2,
        ],
    )
    def test_unequal_or_invalid_files_are_not_blocks(self, files):
        def alloc(shape, dtype):
            pytest.fail("memory was asked for in vain")

        assert DecodeNpy().decode_block(*block(files), alloc) is None

    def test_decoder_with_key_does_not_decode_blocks(self):
        assert not DecodeNpy(key="x").decodes_blocks
        with pytest.raises(TypeError, match="which decodes a field"):
            DecodeNpy(key="x").decode_block(*block([FILE]))

    def test_subclass_with_decode_does_not_decode_blocks(self):
        class Doubled(DecodeNpy):
            def decode(self, data):
                return 2 * super().decode(data)

        assert not Doubled().decodes_blocks
        assert Doubled().map(saved([1, 2])).tolist() == [2, 4]


def test_pickle_and_repr_keep_arguments():
    decoder = DecodeNpy(key="x")
    decoder.map({"x": FILE})
    again = pickle.loads(pickle.dumps(decoder))
    assert repr(again) == repr(decoder) == "DecodeNpy(key='x')"
    assert again.map({"x": FILE})["x"].shape == (2, 3)
    assert repr(DecodeNpy()) == "DecodeNpy()"


def test_loader_decodes_arrays():
    loader = gristmill.DataLoader(
        data_source=[saved(np.full((2, 2), i)) for i in range(8)],
        sampler=gristmill.SequentialSampler(8),
        operations=[DecodeNpy(), Batch(4)],
    )
    first, second = loader
    assert first[:, 1, 1].tolist() == [0, 1, 2, 3]
    assert second.shape == (4, 2, 2)
