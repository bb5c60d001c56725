"""Builds a small TFDS dataset with most kinds of features, by TFDS's own builder.

Run as a script with a folder, it prepares the dataset there and stores the output of
``tfds.data_source``, so that tests need not import TensorFlow.
"""

import io
import os
import pickle
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["TFDS_DISABLE_PROGRESS_BAR"] = "1"

import numpy as np
import tensorflow_datasets as tfds
from tensorflow_datasets.core.data_sources.python import PythonDataSource
from tensorflow_datasets.core.features import audio_feature

F = tfds.features
COUNT = 11
# Replaces pydub, which needs ffmpeg: an audio file contains its samples.
audio_feature._pydub_load_audio = lambda file, *_: np.frombuffer(file.read(), np.int16)


class Everything(tfds.core.GeneratorBasedBuilder):
    """Has a feature of each kind that Gristmill decodes."""

    VERSION = tfds.core.Version("1.0.0")

    def _info(self):
        features = {
            "int": F.Scalar(np.int32),
            "float": np.float32,
            "double": np.float64,
            "bool": np.bool_,
            "uint8": np.uint8,
            "text": F.Text(),
            "label": F.ClassLabel(names=["cat", "dog"]),
            "box": F.BBoxFeature(),
            "image": F.Image(shape=(None, None, 3)),
            "gray": F.Image(shape=(4, 4, 1), encoding_format="png"),
            "jpeg": F.Image(shape=(8, 8, 3), encoding_format="jpeg"),
            "tensor": F.Tensor(shape=(2, 3), dtype=np.float32),
            "rows": F.Tensor(shape=(None, 2), dtype=np.float32),
            "columns": F.Tensor(shape=(2, None), dtype=np.int16),
            "strings": F.Tensor(shape=(2,), dtype=np.str_),
            "as bytes": F.Tensor(shape=(3,), dtype=np.int16, encoding="bytes"),
            "zipped": F.Tensor(shape=(None, 3), dtype=np.bool_, encoding="zlib"),
            "shaped": F.Tensor(shape=(None, None), dtype=np.int32, encoding="zlib"),
            "nested": {"a": np.int64, "deep": {"text": F.Text()}},
            "languages": F.Translation(["de", "en"]),
            "sequence": F.Sequence(np.int64),
            "bools": F.Sequence(np.bool_),
            "texts": F.Sequence(F.Text()),
            "pairs": F.Sequence(F.Tensor(shape=(2,), dtype=np.float32)),
            "two": F.Sequence(F.ClassLabel(num_classes=3), length=2),
            "images": F.Sequence(F.Image(shape=(2, 2, 3))),
            "arrays": F.Sequence(F.Tensor(shape=(2,), dtype=np.int32, encoding="zlib")),
            "dicts": F.Sequence({"x": np.int32, "more": F.Sequence(F.Text())}),
            "lists": F.Sequence(F.Sequence(np.int32)),
            "deep lists": F.Sequence(F.Sequence(F.Sequence(np.float32))),
            "float image": F.Image(shape=(None, 2, 1), dtype=np.float32),
            "labelled": F.LabeledImage(labels=3, shape=(4, 2, 1)),
            "video": F.Video(shape=(None, 4, 3, 3)),
            "jpegs": F.Video(shape=(2, 8, 8, 1), encoding_format="jpeg"),
            "any video": F.Video(),
            "audio": F.Audio(),
            "stereo": F.Audio(shape=(None, 2), dtype=np.int16, sample_rate=8000),
            "audio zipped": F.Audio(dtype=np.int16, encoding="zlib"),
            "audio as bytes": F.Audio(dtype=np.int16, encoding="bytes"),
            "audio file": F.Audio(file_format="wav", lazy_decode=True),
            "audios": F.Sequence(F.Audio(shape=(3,), dtype=np.int16)),
        }
        return tfds.core.DatasetInfo(builder=self, features=F.FeaturesDict(features))

    def _split_generators(self, dl_manager):
        return {
            "train": self._generate_examples(COUNT),
            "test": self._generate_examples(3),
        }

    def _generate_examples(self, count):
        for i in range(count):
            yield i, element(i)


def element(i):
    """Return element i as given to the builder."""
    rng = np.random.default_rng(i)
    few = i % 3
    return {
        "int": i - 3,
        "float": i / 3,
        "double": i / 7,
        "bool": i % 2 == 0,
        "uint8": 255 - i,
        "text": f"text {i}",
        "label": i % 2,
        "box": F.BBox(0.1, 0.2, 0.3, 0.4 + i / 50),
        "image": rng.integers(0, 256, (3 + few, 5, 3), np.uint8),
        "gray": rng.integers(0, 256, (4, 4, 1), np.uint8),
        "jpeg": rng.integers(0, 256, (8, 8, 3), np.uint8),
        "tensor": rng.random((2, 3), np.float32),
        "rows": rng.random((few, 2), np.float32),
        "columns": rng.integers(-9, 9, (2, i)).astype(np.int16),
        "strings": np.array([f"a{i}", ""], object),
        "as bytes": np.array([i, -1, 300], np.int16),
        "zipped": rng.random((few, 3)) > 0.5,
        "shaped": rng.integers(0, 9, (few, 2)).astype(np.int32),
        "nested": {"a": 2**40 + i, "deep": {"text": f"deep {i}"}},
        "languages": {"de": f"Zahl {i}", "en": f"number {i}"},
        "sequence": list(range(i % 4)),
        "bools": [i % 2 == 0] * few,
        "texts": [f"text {j}" for j in range(few)],
        "pairs": rng.random((few, 2), np.float32),
        "two": [few, 1],
        "images": [*rng.integers(0, 256, (few, 2, 2, 3), np.uint8)],
        "arrays": [np.array([i, j], np.int32) for j in range(few)],
        "dicts": [{"x": j, "more": ["m"] * j} for j in range(few)],
        "lists": [[j] * j for j in range(i % 4)],
        "deep lists": [[[0.5] * j, []] for j in range(few)],
        "float image": rng.random((3 + few, 2, 1), np.float32),
        "labelled": rng.integers(0, 3, (4, 2, 1), np.uint8),
        "video": rng.integers(0, 256, (few, 4, 3, 3), np.uint8),
        "jpegs": rng.integers(0, 256, (2, 8, 8, 1), np.uint8),
        "any video": [*rng.integers(0, 256, (few, 2, i + 1, 3), np.uint8)],
        "audio": rng.integers(-(2**40), 2**40, i),
        "stereo": rng.integers(-9, 9, (few, 2)).astype(np.int16),
        "audio zipped": io.BytesIO(np.arange(i, dtype=np.int16).tobytes()),
        "audio as bytes": io.BytesIO(np.arange(i, dtype=np.int16).tobytes()),
        "audio file": io.BytesIO(b"RIFF" * i),
        "audios": [np.array([j, 2, 3], np.int16) for j in range(few)],
    }


STEP = {
    "image": F.Image(shape=(2, 2, 3)),
    "reward": np.float32,
    "discount": np.float64,
    "is_last": np.bool_,
    "action": F.Tensor(shape=(3,), dtype=np.float32),
    "observation": {"state": np.int64, "text": F.Text()},
    "label": F.ClassLabel(num_classes=3),
    "strings": F.Tensor(shape=(2,), dtype=np.str_),
    "zipped": F.Tensor(shape=(None, 2), dtype=np.float32, encoding="zlib"),
    "languages": F.Translation(["de", "en"]),
    "list": F.Sequence(np.int32),
    "texts": F.Sequence(F.Text()),
    "pairs": F.Sequence(F.Tensor(shape=(2,), dtype=np.float32)),
    "images": F.Sequence(F.Image(shape=(2, 2, 3))),
    "dicts": F.Sequence({"x": np.int32}),
    "lists": F.Sequence(F.Sequence(np.int32)),
    "video": F.Video(shape=(None, 2, 2, 3)),
    "audio": F.Audio(shape=(4,), dtype=np.int16),
}


def step(i, j):
    """Return step j of episode i."""
    rng = np.random.default_rng([i, j])
    return {
        "image": rng.integers(0, 256, (2, 2, 3), np.uint8),
        "reward": j / 3,
        "discount": j / 7,
        "is_last": j == 2,
        "action": rng.random(3, np.float32),
        "observation": {"state": 2**40 + j, "text": f"state {j}"},
        "label": j % 3,
        "strings": np.array([f"a{j}", ""], object),
        "zipped": rng.random((j, 2), np.float32),
        "languages": {"de": f"Zahl {j}", "en": f"number {j}"},
        "list": list(range(j)),
        "texts": [f"text {k}" for k in range(j)],
        "pairs": rng.random((j, 2), np.float32),
        "images": [*rng.integers(0, 256, (j, 2, 2, 3), np.uint8)],
        "dicts": [{"x": k} for k in range(j)],
        "lists": [[k] * k for k in range(j)],
        "video": rng.integers(0, 256, (j, 2, 2, 3), np.uint8),
        "audio": np.arange(4, dtype=np.int16) * j,
    }


class Episodes(tfds.core.GeneratorBasedBuilder):
    """Has datasets in its elements."""

    VERSION = tfds.core.Version("1.0.0")

    def _info(self):
        features = {
            "id": np.int64,
            "steps": F.Dataset(STEP),
            "numbers": F.Dataset(np.int32),
            "texts": F.Dataset(F.Text()),
            "inside": {"steps": F.Dataset({"x": np.int64})},
        }
        return tfds.core.DatasetInfo(builder=self, features=F.FeaturesDict(features))

    def _split_generators(self, dl_manager):
        return {"train": self._generate_examples()}

    def _generate_examples(self):
        for i in range(5):
            count = i % 4
            yield (
                i,
                {
                    "id": i,
                    "steps": [step(i, j) for j in range(count)],
                    "numbers": range(count),
                    "texts": [f"text {j}" for j in range(count)],
                    "inside": {"steps": [{"x": j} for j in range(count)]},
                },
            )


class FixedSteps(tfds.core.GeneratorBasedBuilder):
    """Has sequences of fixed length in a dataset, which tfds.data_source misreads."""

    VERSION = tfds.core.Version("1.0.0")

    def _info(self):
        steps = {
            "two": F.Sequence(np.int32, length=2),
            "video": F.Video(shape=(2, 2, 2, 1)),
        }
        features = {"steps": F.Dataset(steps)}
        return tfds.core.DatasetInfo(builder=self, features=F.FeaturesDict(features))

    def _split_generators(self, dl_manager):
        return {"train": self._generate_examples()}

    def _generate_examples(self):
        video = np.arange(8, dtype=np.uint8).reshape(2, 2, 2, 1)
        for i in range(3):
            yield i, {"steps": [{"two": [j, 5], "video": video} for j in range(i)]}


class Refused(tfds.core.GeneratorBasedBuilder):
    """Has features that Gristmill does not decode, and one that it does."""

    VERSION = tfds.core.Version("1.0.0")

    def _info(self):
        features = {
            "good": np.int64,
            "videos": F.Sequence(F.Video(shape=(None, 2, 2, 3))),
            "wide": F.Image(shape=(2, 2, 1), dtype=np.uint16),
            "sources": F.Dataset({"inner": F.Dataset({"x": np.int64})}),
            "image lists": F.Sequence(F.Sequence(F.Image(shape=(1, 1, 3)))),
        }
        return tfds.core.DatasetInfo(builder=self, features=F.FeaturesDict(features))

    def _split_generators(self, dl_manager):
        return {"train": self._generate_examples()}

    def _generate_examples(self):
        for i in range(2):
            yield (
                i,
                {
                    "good": i,
                    "videos": [],
                    "sources": [{"inner": [{"x": 1}]}],
                    "wide": np.zeros((2, 2, 1), np.uint16),
                    "image lists": [],
                },
            )


def listed(element):
    """Return an element with datasets as lists, which need no decoding."""
    if isinstance(element, dict):
        return {name: listed(value) for name, value in element.items()}
    return [*element] if isinstance(element, PythonDataSource) else element


def prepare(folder):
    """Prepare the datasets in a folder, and store the elements of two next to them."""
    elements = {}
    for builder in (Everything, Episodes, FixedSteps, Refused):
        made = builder(data_dir=folder, file_format="array_record")
        made.download_and_prepare()
        if builder is Episodes:
            source = made.as_data_source(split="train")
            elements["episodes"] = [*map(listed, source)]
        if builder is Everything:
            splits = (
                "train",
                "test",
                "train[2:7]",
                "train[25%:]",
                "train[-30%:]",
                "train[-3:-1]",
            )
            for split in splits:
                elements[split] = [*made.as_data_source(split=split)]
    with open(os.path.join(folder, "elements.pickle"), "wb") as file:
        pickle.dump(elements, file)


if __name__ == "__main__":
    prepare(sys.argv[1])
