"""The tutorial about DataLoader, and the order that its design page describes."""

import itertools
import json

import numpy as np
import pytest
from PIL import Image

KEYS = [0, 4, 1, 2, 3, 1, 2, 3, 0, 4]


class Pictures:
    """Five pictures of 24 x 40 pixels, in place of a downloaded dataset."""

    def __len__(self):
        return 5

    def __getitem__(self, index):
        rng = np.random.default_rng(index)
        return {
            "file_name": f"{index}.jpg".encode(),
            "image": rng.integers(0, 256, (24, 40, 3), np.uint8),
            "label": 100 + index,
        }

    def __repr__(self):
        return "Pictures()"


def index_sampler(grain, num_records=5, num_epochs=2):
    return grain.IndexSampler(
        num_records=num_records,
        num_epochs=num_epochs,
        shard_options=grain.ShardOptions(
            shard_index=0, shard_count=1, drop_remainder=True
        ),
        shuffle=True,
        seed=0,
    )


@pytest.fixture
def loader(grain_python):
    class ResizeAndCrop(grain_python.MapTransform):
        def map(self, element):
            image = Image.fromarray(element["image"]).resize((32, 32))
            element["image"] = np.asarray(image)[:28, :28]
            return element

    return grain_python.DataLoader(
        data_source=Pictures(),
        operations=[ResizeAndCrop()],
        sampler=index_sampler(grain_python),
        worker_count=0,
    )


def labels(iterator, count):
    elements = itertools.islice(iterator, count)
    return [(x["file_name"], x["label"]) for x in elements]


def test_loader_reads_in_the_samplers_order_and_transforms(loader):
    elements = list(loader)
    assert [e["label"] - 100 for e in elements] == KEYS
    assert {e["image"].shape for e in elements} == {(28, 28, 3)}
    assert {e["image"].dtype for e in elements} == {np.dtype(np.uint8)}


def test_orbax_saves_and_restores_the_iterator(grain_python, loader, tmp_path):
    import orbax.checkpoint as ocp

    data_iter = iter(loader)
    assert labels(data_iter, 5) == [(b"%d.jpg" % k, 100 + k) for k in KEYS[:5]]

    manager = ocp.CheckpointManager(tmp_path / "orbax")
    saved = grain_python.PyGrainCheckpointSave(data_iter)
    assert manager.save(step=5, args=saved, force=True)
    manager.wait_until_finished()
    (path,) = (tmp_path / "orbax").glob("*/*/*.json")
    assert path.relative_to(tmp_path / "orbax").as_posix() == (
        "5/default/process_0-of-1.json"
    )
    state = json.loads(path.read_text())
    # A checkpoint is valid only for the sampler and the source that it was made with.
    assert state["data_source"] == "Pictures()"
    assert state["sampler"].startswith("IndexSampler(num_records=5")

    rest = labels(data_iter, 5)
    assert rest == [(b"%d.jpg" % k, 100 + k) for k in KEYS[5:]]
    manager.restore(5, args=grain_python.PyGrainCheckpointRestore(data_iter))
    assert labels(data_iter, 5) == rest
    manager.close()


def test_checkpoint_of_another_source_is_refused(grain_python, loader):
    other = grain_python.DataLoader(
        data_source=grain_python.RangeDataSource(0, 5, 1),
        sampler=index_sampler(grain_python),
    )
    state = iter(other).get_state()
    with pytest.raises(ValueError, match=r"(?i)data ?source"):
        iter(loader).set_state(state)


@pytest.mark.multiprocess
def test_in_memory_source_is_shared_by_workers(grain_python, workers):
    source = grain_python.InMemoryDataSource(range(5))
    assert str(source).startswith("InMemoryDataSource(name=")
    assert str(source).endswith(", len=5)")
    assert source[0] == 0
    loader = grain_python.DataLoader(
        data_source=source,
        sampler=grain_python.IndexSampler(
            num_records=len(source),
            num_epochs=2,
            shard_options=grain_python.NoSharding(),
            shuffle=True,
            seed=0,
        ),
        worker_count=workers(5),
    )
    data_iter = iter(loader)
    assert [int(next(data_iter)) for _ in range(10)] == KEYS
    source.close()
    source.unlink()


@pytest.mark.multiprocess
def test_per_worker_read_options_do_not_change_the_stream(grain_python, workers):
    loader = grain_python.DataLoader(
        data_source=Pictures(),
        sampler=index_sampler(grain_python),
        worker_count=workers(2),
        read_options=grain_python.ReadOptions(num_threads=8, prefetch_buffer_size=500),
    )
    assert [int(e["label"]) - 100 for e in loader] == KEYS


@pytest.mark.multiprocess
def test_workers_take_records_in_turn_and_batches_alternate(grain_python):
    """Each of two workers makes batches of every other record, as the page shows."""
    keys = [5, 2, 0, 4, 6, 1, 7, 3]

    class Listed:
        def __len__(self):
            return len(keys)

        def __getitem__(self, index):
            return keys[index]

        def __repr__(self):
            return "Listed()"

    loader = grain_python.DataLoader(
        data_source=Listed(),
        sampler=grain_python.SequentialSampler(
            len(keys), shard_options=grain_python.NoSharding()
        ),
        operations=[grain_python.Batch(batch_size=2)],
        worker_count=2,
    )
    assert [b.tolist() for b in loader] == [[5, 0], [2, 4], [6, 7], [1, 3]]
