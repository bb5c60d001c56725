"""Feeds two hosts from MaxText's Grain pipelines: pretraining, preferences, OLMo.

Reads ArrayRecord, TFRecord and Parquet files that the program writes. Uses the
tokenizer of Llama 2 that MaxText ships and each kind of packing, stops, and resumes.
"""

import itertools
import json
import pathlib
import random

import google_crc32c
import jax
import maxtext
import ml_collections
import numpy as np
import pyarrow
import pyarrow.parquet
from absl import flags
from array_record.python import array_record_module
from maxtext.input_pipeline import (
    grain_data_processing,
    multihost_dataloading,
    olmo_data,
    olmo_data_grain,
)
from maxtext.input_pipeline.protos import example_pb2

TOKENIZER = pathlib.Path(maxtext.__file__).parent / "assets/tokenizers/tokenizer.llama2"
WORDS = "data loader batch worker epoch shuffle record state host resume".split()
LENGTH = 24

# MaxText would end all orphaned processes of the machine, also of other programs.
multihost_dataloading._cleanup_orphaned_multiprocessing_processes = lambda: None


def texts(count, seed):
    draws = random.Random(seed)
    for number in range(count):
        yield f"{number} " + " ".join(draws.choices(WORDS, k=draws.randrange(2, 20)))


def example(text):
    """Return a serialized tf.train.Example."""
    message = example_pb2.Example()
    message.features.feature["text"].bytes_list.value.append(text.encode())
    return message.SerializeToString()


def write_array_records(path, count, seed):
    writer = array_record_module.ArrayRecordWriter(str(path), "group_size:1")
    for text in texts(count, seed):
        writer.write(example(text))
    writer.close()


def write_tf_records(path, count, seed):
    with open(path, "wb") as file:
        for text in texts(count, seed):
            record = example(text)
            length = len(record).to_bytes(8, "little")
            file.write(length + checksum(length) + record + checksum(record))


def checksum(data):
    """Return the masked CRC of TFRecord."""
    crc = google_crc32c.value(data)
    masked = ((crc >> 15 | crc << 17) + 0xA282EAD8) % 2**32
    return masked.to_bytes(4, "little")


def write_parquet(path, rows):
    table = pyarrow.Table.from_pylist(list(rows))
    pyarrow.parquet.write_table(table, path, row_group_size=4)


def preferences(count, seed):
    for text in texts(count, seed):
        prompt, _, rest = text.partition(" ")
        yield {"prompt": prompt, "chosen": rest, "rejected": rest[::-1]}


def write_data():
    folder = pathlib.Path("data")
    folder.mkdir()
    for number in range(4):
        write_array_records(folder / f"a-{number}.array_record", 30, number)
        write_tf_records(folder / f"t-{number}.tfrecord", 25, 10 + number)
        write_parquet(folder / f"pairs-{number}.parquet", preferences(20, 30 + number))
    mixture = {
        "first": {"path": "data/a-0.array_record", "weight": 0.7},
        "second": {"path": "data/a-1.array_record", "weight": 0.3},
    }
    (folder / "mixture.json").write_text(json.dumps(mixture))


def config(**changes):
    """Return the options that the pipelines read, as in MaxText's base.yml."""
    options = {
        "add_bos": True,
        "add_eos": True,
        "checkpoint_dir": "",
        "colocated_python_data_input": False,
        "data_shuffle_seed": 5,
        "dpo": {"max_prompt_length": 8},
        "elastic_enabled": False,
        "enable_data_shuffling": True,
        "eval_data_columns": ["text"],
        "expansion_factor_real_data": -1.0,
        "generate_padding_batch_eval": True,
        "generate_padding_batch_train": False,
        "global_batch_size_to_load": 4,
        "global_batch_size_to_load_eval": 4,
        "grain_data_source_max_workers": 4,
        "grain_eval_files": "data/a-3.array_record",
        "grain_file_type": "arrayrecord",
        "grain_num_threads": 4,
        "grain_num_threads_eval": 2,
        "grain_packing_type": "first_fit",
        "grain_per_worker_buffer_size": 1,
        "grain_per_worker_buffer_size_eval": 1,
        "grain_prefetch_buffer_size": 8,
        "grain_prefetch_buffer_size_eval": 8,
        "grain_shuffle_buffer_size": 10,
        "grain_train_files": "data/a-*.array_record",
        "grain_train_mixture_config_path": "",
        "grain_use_elastic_iterator": False,
        "grain_worker_count": 0,
        "grain_worker_count_eval": 0,
        "hf_access_token": "",
        "hf_path": "",
        "max_segments_per_seq": -1,
        "max_target_length": LENGTH,
        "mmap_npy_split": "",
        "num_epoch": 20,
        "packing": True,
        "sft_train_on_completion_only": True,
        "tokenize_eval_data": True,
        "tokenize_train_data": True,
        "tokenizer_path": str(TOKENIZER),
        "tokenizer_type": "sentencepiece",
        "train_data_columns": ["text"],
        "use_dpo": False,
        "use_multimodal": False,
        "use_sft": False,
        "use_truncation": True,
    }
    return ml_collections.ConfigDict({**options, **changes})


TFRECORD = {"grain_file_type": "tfrecord", "grain_train_files": "data/t-*.tfrecord"}
PREFERENCES = {
    "grain_file_type": "parquet",
    "grain_train_files": "data/pairs-*.parquet",
    "train_data_columns": ["prompt", "chosen", "rejected"],
    "use_dpo": True,
}
# The options in which each run differs from those above.
RUNS = {
    "first fit": {},
    "best fit, segments": {
        "grain_packing_type": "best_fit",
        "grain_train_files": "data/a-0.array_record,0.6;data/a-2.array_record,0.4",
    },
    "concat then split": {"grain_packing_type": "concat_then_split"},
    "chunks": {"use_truncation": False, "max_segments_per_seq": 2},
    "padded": {"packing": False},
    "mixture": {"grain_train_mixture_config_path": "data/mixture.json"},
    "TFRecord": TFRECORD,
    "few TFRecord files": {**TFRECORD, "grain_train_files": "data/t-1.tfrecord"},
    "preferences": PREFERENCES,
    "elastic": {"grain_use_elastic_iterator": True, "packing": False},
}
# Numbers of workers and hosts of additional runs. Workers take long to start.
WITH_WORKERS = {name: [(1, 1)] for name in ("chunks", "mixture", "TFRecord", "elastic")}


def iterator(options, host):
    """Return MaxText's iterator over the batches of one of two hosts."""
    mesh = jax.sharding.Mesh(jax.devices()[:1], ("data",))
    hosts = [1, 0] if host else [0, 1]
    return grain_data_processing.make_grain_train_iterator(options, mesh, hosts)


def run(options, host, steps=6):
    """Yield batches, a state of Grain's iterator, and the batches after a resume."""
    batches = iterator(options, host)
    # A for loop would start again from the first batch.
    for _ in range(steps):
        yield "batch", next(batches)
    state = json.loads(json.dumps(batches.local_iterator.get_state()))
    yield "state", state
    resumed = iterator(options, host)
    resumed.local_iterator.set_state(state)
    for _ in range(steps):
        yield "resumed", next(resumed)


def evaluate(workers):
    mesh = jax.sharding.Mesh(jax.devices()[:1], ("data",))
    options = config(grain_worker_count_eval=workers)
    batches = grain_data_processing.make_grain_eval_iterator(options, mesh, [0, 1])
    yield from itertools.islice(batches, 12)


def olmo(workers):
    """Yield batches of token files, with Grain's loader and MaxText's sampler."""
    draws = np.random.default_rng(1)
    paths = []
    for number in range(3):
        path = f"data/olmo-{number}-{workers}.npy"
        np.save(path, draws.integers(1, 1000, 40 * LENGTH + number).astype(np.uint32))
        paths.append((path, f"label {number}"))
    index = olmo_data.build_index(paths, LENGTH, tokenizer="none")
    options = {"seed": 3, "batch_size": 4, "shard_count": 2}
    for host, start in ((0, 0), (1, 0), (1, 20)):
        loader = olmo_data_grain.make_olmo_grain_data_loader(
            index,
            shard_index=host,
            initial_step=start,
            grain_worker_count=workers,
            **options,
        )
        for batch in itertools.islice(loader, 10):
            yield f"host {host} from {start}", jax.tree.map(np.asarray, batch)


def main():
    # MaxText's trainer does this, too. Grain passes the flags to its workers.
    flags.FLAGS.mark_as_parsed()
    write_data()
    for name, changes in RUNS.items():
        for workers, host in ((0, 0), (0, 1), *WITH_WORKERS.get(name, ())):
            options = config(grain_worker_count=workers, **changes)
            for part, value in run(options, host):
                yield f"{name}, {workers} workers, host {host}, {part}", value
    for workers in (0, 2):
        for batch in evaluate(workers):
            yield f"evaluation, {workers} workers", batch
        for part, value in olmo(workers):
            yield f"OLMo, {workers} workers, {part}", value
