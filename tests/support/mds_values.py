"""Strategies that draw values of each encoding of MosaicML Streaming."""

import io

import hypothesis.extra.numpy as hnp
import numpy as np
import PIL.Image
from hypothesis import strategies as st

INTEGERS = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
FLOATS = ["float16", "float32", "float64"]
NUMBERS = INTEGERS + FLOATS
PIXELS = hnp.arrays(np.uint8, (4, 3, 3))
PICTURES = PIXELS.map(PIL.Image.fromarray)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda values: st.lists(values) | st.dictionaries(st.text(), values),
    max_leaves=5,
)


def arrays(dtypes, shapes=None):
    shapes = shapes or hnp.array_shapes(max_dims=3, max_side=4)
    return st.sampled_from(dtypes).flatmap(lambda dtype: hnp.arrays(dtype, shapes))


def jpeg(picture):
    file = io.BytesIO()
    picture.save(file, "JPEG")
    return file.getvalue()


VALUES = {
    "bytes": st.binary(max_size=20),
    "str": st.text(),
    "int": st.integers(-(2**63), 2**63 - 1),
    "ndarray": arrays(NUMBERS),
    "ndarray:uint16": arrays(["uint16"]),
    "ndarray:float32:2,3": arrays(["float32"], (2, 3)),
    "str_int": st.integers(),
    "str_float": st.floats(),
    "str_decimal": st.decimals(),
    "json": JSON,
    "pkl": st.frozensets(st.integers()),
    "pil": PICTURES,
    "jpeg": PICTURES,
    "png": PICTURES,
    "jpeg_array": st.lists(PICTURES.map(jpeg), min_size=1, max_size=2),
    "jpegarray": st.lists(PICTURES.map(jpeg), min_size=1, max_size=2),
    "list[pil]": st.lists(PICTURES, max_size=2),
    "list[jpeg]": st.lists(PICTURES, max_size=2),
    "list[png]": st.lists(PICTURES, max_size=2),
}
VALUES |= {name: hnp.from_dtype(np.dtype(name)) for name in NUMBERS}


def data_sets(encodings):
    """Draw the columns and the samples of a data set."""
    names = st.text(min_size=1, max_size=3)
    columns = st.dictionaries(names, st.sampled_from(encodings), min_size=1, max_size=4)
    return columns.flatmap(
        lambda drawn: st.tuples(
            st.just(drawn),
            st.lists(
                st.fixed_dictionaries({name: VALUES[drawn[name]] for name in drawn}),
                min_size=1,  # Streaming cannot read an empty data set.
                max_size=4,
            ),
        )
    )
