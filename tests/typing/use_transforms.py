"""Transforms declare their output by the types of their own methods."""

import dataclasses
from typing import Any, assert_type

import numpy as np
import numpy.typing as npt

import gristmill as grain
from gristmill import IterDataset, MapDataset, transforms

Image = npt.NDArray[np.uint8]


class Decode(grain.MapTransform):
    def map(self, record: bytes) -> Image:
        return np.frombuffer(record, np.uint8)


@dataclasses.dataclass(frozen=True)
class Noise(grain.RandomMapTransform):
    scale: float

    def random_map(
        self, image: Image, rng: np.random.Generator
    ) -> npt.NDArray[np.float64]:
        return image + self.scale * rng.standard_normal(image.shape)


class DecodeSeveral(grain.BlockMap):
    def block_map(self, records: list[bytes]) -> list[Image]:
        return [np.frombuffer(record, np.uint8) for record in records]


class Number(grain.MapWithIndexTransform):
    def map_with_index(self, i: int, image: Image) -> tuple[int, Image]:
        return i, image


class Bright(grain.FilterTransform):
    def filter(self, image: Image) -> np.bool_:
        return np.bool_(image.mean() > 10)


class Long(transforms.Filter):
    def filter(self, element: Any) -> bool:
        return len(element) > 1


class Rows(transforms.FlatMap):
    max_fan_out = 4

    def flat_map(self, image: Image) -> list[np.uint8]:
        return list(image)


class Untyped(transforms.Map):
    def map(self, x):  # type: ignore[no-untyped-def]  # pyright: ignore
        return x  # pyright: ignore


def stacked(images: list[Image]) -> Image:
    return np.stack(images)


records = grain.MapDataset.source([b"abc", b"def"])
images = records.map(Decode())
assert_type(records, MapDataset[bytes])
assert_type(images, MapDataset[Image])
assert_type(images.random_map(Noise(0.5), seed=1), MapDataset[npt.NDArray[np.float64]])
assert_type(records.block_map(DecodeSeveral()), MapDataset[Image])
assert_type(images.map_with_index(Number()), MapDataset[tuple[int, Image]])
assert_type(images.filter(Bright()), MapDataset[Image])
assert_type(images.filter(Long()), MapDataset[Image])
assert_type(images.batch(2), MapDataset[Image])

stream = records.to_iter_dataset().map(Decode())
assert_type(stream, IterDataset[Image])
assert_type(stream.map_with_index(Number()), IterDataset[tuple[int, Image]])
assert_type(stream.filter(Bright()), IterDataset[Image])

# A list of several kinds, before use.
operations = [Decode(), Long(), Noise(0.5), grain.Batch(batch_size=2, batch_fn=None)]
assert_type(records.seed(1).apply(operations[:3]), MapDataset[Any])
assert_type(records.apply(Decode()), MapDataset[Any])
assert_type(
    grain.experimental.apply_transformations(stream, [Rows()]), IterDataset[Any]
)
loader = grain.DataLoader(
    data_source=[b"abc", b"def"],
    sampler=grain.SequentialSampler(2, seed=1),
    operations=operations,
)
print(next(iter(loader)))

grain.Batch(2, drop_remainder=True, batch_fn=stacked)


def describe(transform: grain.Transformation, several: grain.Transformations) -> None:
    records.apply(transform)
    records.apply(several)


def any_map(transform: transforms.Map) -> None:
    assert_type(records.map(transform), MapDataset[Any])


describe(Decode(), [Decode(), Long()])
any_map(Decode())
