"""The tutorials about sources of records: formats, stores and other libraries."""

import functools
import pickle
import pprint
import random

import numpy as np
import pytest

QUESTIONS = [
    b"do iran and afghanistan speak the same language",
    b"is house tax and property tax are same",
    b"is there a difference between sweating and perspiring",
    b"is a whale a fish",
    b"can a bear climb a tree",
    b"is the moon a planet",
    b"do fish sleep",
]
EMAILS = {
    "email_subject": ["Meeting at ten", "New policy", "A quick question"],
    "email_body": [
        "Hi team, see you at ten.",
        "Dear all, read the policy.",
        "Do you know the answer?",
    ],
}


@functools.cache
def tokenizer():
    """Return a word tokenizer that needs no download."""
    tokenizers = pytest.importorskip("tokenizers")
    words = b" ".join(QUESTIONS).decode().split()
    for column in EMAILS.values():
        words += " ".join(column).split()
    vocabulary = {word: i for i, word in enumerate(sorted({"?", *words}))}
    model = tokenizers.models.WordLevel(vocabulary, unk_token="?")
    made = tokenizers.Tokenizer(model)
    made.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    return made


def write_array_record(path, records):
    from array_record.python import array_record_module

    writer = array_record_module.ArrayRecordWriter(str(path), "group_size:1")
    for record in records:
        writer.write(record)
    writer.close()
    return str(path)


def test_array_record_files_hold_any_bytes(grain, tmp_path):
    records = [{"question": q, "answer": i % 2} for i, q in enumerate(QUESTIONS)]
    path = write_array_record(
        tmp_path / "test.array_record", map(pickle.dumps, records)
    )
    source = grain.sources.ArrayRecordDataSource(path)
    assert len(source) == 7
    assert pickle.loads(source[0]) == records[0]

    class ParseAndTokenizeText(grain.transforms.Map):
        def __init__(self, tokenizer, feature_name):
            self._tokenizer = tokenizer
            self._feature_name = feature_name

        def map(self, element):
            text = pickle.loads(element)[self._feature_name].decode()
            return self._tokenizer.encode(text).tokens[:3]

    dataset = (
        grain.MapDataset.source(source)
        .shuffle(seed=42)
        .map(ParseAndTokenizeText(tokenizer(), "question"))
        .batch(batch_size=3)
    )
    # Batch 100 is in a later epoch, which has another shuffle order.
    assert [words.tolist() for words in dataset[100]] == [
        ["is", "is", "do"],
        ["a", "house", "fish"],
        ["whale", "tax", "sleep"],
    ]


def test_parquet_rows_are_read_in_turn(grain, tmp_path):
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    path = str(tmp_path / "emails.parquet")
    pq.write_table(pa.table(EMAILS), path)
    dataset = grain.experimental.ParquetIterDataset(path)
    assert pprint.pformat(next(iter(dataset))) == (
        "{'email_body': 'Hi team, see you at ten.', 'email_subject': 'Meeting at ten'}"
    )

    class TokenizeText(grain.transforms.Map):
        def __init__(self, tokenizer):
            self._tokenizer = tokenizer

        def map(self, element):
            return [self._tokenizer.encode(item).tokens for item in element.values()]

    iterator = iter(dataset.map(TokenizeText(tokenizer())))
    assert next(iterator) == [
        ["Meeting", "at", "ten"],
        ["Hi", "team,", "see", "you", "at", "ten."],
    ]
    assert len(list(iterator)) == 2


@pytest.mark.parametrize("store", ["s3", "gcs"])
def test_mounted_bucket_is_read_as_a_folder(grain, tmp_path, store):
    """Both tutorials mount the bucket and read files; here it is a plain folder."""
    bucket = tmp_path / "mnt" / store / "bucket"
    bucket.mkdir(parents=True)
    digits = [b"1", b"2", b"3", b"4", b"5"]
    path = write_array_record(bucket / "data.array_record", digits)
    source = grain.sources.ArrayRecordDataSource(paths=path)
    dataset = grain.MapDataset.source(source).shuffle(seed=10).batch(batch_size=2)
    assert [batch.tolist() for batch in dataset] == [
        [b"5", b"1"],
        [b"2", b"4"],
        [b"3"],
    ]
    assert dataset[10].tolist() == [b"3", b"2"]


def test_bucket_is_read_by_its_address_without_a_mount(tmp_path):
    """Grain's tutorials need a mount; Gristmill reads the address itself."""
    import fsspec

    import gristmill

    memory = fsspec.filesystem("memory")
    path = write_array_record(tmp_path / "data.array_record", [b"1", b"2", b"3"])
    memory.put(path, "/bucket/data.array_record")
    source = gristmill.ArrayRecordDataSource("memory://bucket/data.array_record")
    dataset = gristmill.MapDataset.source(source).shuffle(seed=10).batch(2)
    assert sorted(x for batch in dataset for x in batch.tolist()) == [b"1", b"2", b"3"]
    memory.rm("/bucket", recursive=True)


class Bag:
    """Forty records with the interface of a Bagz reader: length, index, slice."""

    def __init__(self):
        numbers = random.Random(42)
        self._records = [
            f"Record: {numbers.randint(100, 1000)}".encode() for _ in range(40)
        ]

    def __len__(self):
        return len(self._records)

    def __getitem__(self, index):
        return self._records[index]


def test_bag_of_records_is_filtered_and_mapped(grain):
    reader = Bag()
    assert len(reader) == 40
    assert reader[10] == b"Record: 792"
    dataset = (
        grain.MapDataset.source(reader)
        .shuffle(seed=42)
        .map(lambda x: x.decode())
        .filter(lambda x: x[-1] != "6")
        .map(lambda x: x.upper())
        .to_iter_dataset()
    )
    found = [int(x.removeprefix("RECORD: ")) for x in dataset]
    assert len(reader) - len(found) == 2
    assert found[:12] == [704, 674, 877, 189, 325, 323, 303, 125, 381, 990, 127, 859]
    assert found[-6:] == [703, 925, 130, 792, 242, 754]


REVIEWS = {
    "review": ["great app", "works well with my radio", "crashes", "fine", "love it"],
    "date": ["October 12 2016", "July 22 2016", "May 5 2016", "June 1 2016", "Aug 23"],
    "star": [4, 5, 1, 3, 5],
}


@pytest.fixture
def hub_dataset(tmp_path):
    """Return an in-memory dataset of Hugging Face's library."""
    datasets = pytest.importorskip("datasets")
    return datasets.Dataset.from_dict(REVIEWS)


def length_of_review(sample):
    words = np.zeros(6, np.int64)
    for i, word in enumerate(sample["review"].split()):
        words[i] = len(word)
    sample["review"] = words
    return sample


def test_hugging_face_dataset_is_a_source(grain, hub_dataset):
    def to_arrays(sample):
        return {name: np.asarray(value) for name, value in sample.items()}

    dataset = grain.MapDataset.source(hub_dataset).shuffle(seed=42).map(to_arrays)
    elements = list(dataset)
    assert [int(e["star"]) for e in elements] == [5, 5, 1, 3, 4]
    assert elements[0]["review"].dtype == np.dtype("<U7")
    tokenized = dataset.map(
        lambda e: length_of_review({**e, "review": str(e["review"])})
    )
    assert tokenized[1]["review"].tolist() == [5, 4, 4, 2, 5, 0]


def test_hugging_face_pipeline_filters_tokenizes_and_batches(grain, hub_dataset):
    dataset = (
        grain.MapDataset.source(hub_dataset)
        .shuffle(seed=42)
        .filter(lambda x: x["star"] > 3)
        .map(length_of_review)
        .to_iter_dataset()
        .batch(batch_size=2)
    )
    first, last = dataset
    assert first["star"].tolist() == [5, 5]
    assert first["date"].tolist() == ["Aug 23", "July 22 2016"]
    assert first["review"].tolist() == [[4, 2, 0, 0, 0, 0], [5, 4, 4, 2, 5, 0]]
    assert last["star"].tolist() == [4]


def test_torch_dataset_is_a_source(grain, digits):
    torch = pytest.importorskip("torch")
    from PIL import Image

    class Pictures(torch.utils.data.Dataset):
        """A dataset of pictures and labels, like those of torchvision."""

        def __len__(self):
            return 40

        def __getitem__(self, index):
            digit = digits[index]
            return Image.fromarray(digit["image"][..., 0]), digit["label"]

    class ToTensorAndOneHot(grain.transforms.Map):
        def map(self, element):
            image, label = element
            pixels = torch.from_numpy(np.asarray(image, np.float32) / 255)[None]
            return pixels, torch.nn.functional.one_hot(torch.tensor(label), 10)

    class KeepLargeOnly(grain.transforms.Filter):
        kept = frozenset({5, 7, 9})

        def filter(self, element):
            return element[1] in self.kept

    dataset = (
        grain.MapDataset.source(Pictures())
        .shuffle(seed=42)
        .filter(KeepLargeOnly())
        .map(ToTensorAndOneHot())
        .to_iter_dataset()
        .batch(
            batch_size=5,
            batch_fn=lambda ts: tuple(torch.stack(t) for t in zip(*ts, strict=True)),
        )
    )
    images, labels = next(iter(dataset))
    assert type(images) is torch.Tensor
    assert images.shape == (5, 1, 8, 8)
    assert labels.argmax(dim=1).tolist() == [9, 9, 5, 9, 5]
    assert {int(x) for _, batch in dataset for x in batch.argmax(dim=1)} == {5, 7, 9}
