"""Feed several hosts from a mixture of corpora like MaxText, stop, and resume.

    python examples/maxtext_pipeline.py [--data DIRECTORY] [--workers 2]

Three corpora in ArrayRecord files are shuffled and mixed by weights, tokenized, packed
into rows of 128 tokens and turned into inputs and targets. Each of two hosts takes its
share of the documents, with worker processes, and saves its position with Orbax if that
is installed. Then the same rows are read elastically: two hosts stop, three continue
from the state of one of them, and no row is lost or repeated.

    pip install 'gristmill[convert,orbax]' tokenizers
"""

import argparse
import importlib.util
import itertools
import json
import pathlib
import sysconfig
import tempfile
from typing import Any

import numpy as np
from text_pipeline import Tokenize, train_tokenizer, write_records

import gristmill

LENGTH = 128  # Tokens per row.
VOCABULARY = 2048
PACKING_BINS = 24
GLOBAL_BATCH = 12  # Rows per step of all hosts together.
SEED = 7
# Folders of the standard library, and their weights in the mixture.
CORPORA = {"asyncio": 0.5, "email": 0.3, "json": 0.2}


# The data: one file per corpus, and a tokenizer trained on all of them.


def documents(corpus: str) -> list[dict[str, str]]:
    folder = pathlib.Path(sysconfig.get_paths()["stdlib"]) / corpus
    texts = (path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.py")))
    parts = (part for text in texts for part in text.split("\n\n"))
    return [{"description": part} for part in parts if part.strip()]


def write_corpora(folder: pathlib.Path) -> tuple[list[str], Tokenize]:
    """Returns the paths of the corpora and a function that tokenizes a document."""
    texts_by_corpus = {corpus: documents(corpus) for corpus in CORPORA}
    paths = [
        write_records(folder / f"{corpus}.array_record", texts)
        for corpus, texts in texts_by_corpus.items()
    ]
    all_texts = itertools.chain.from_iterable(texts_by_corpus.values())
    tokenizer = train_tokenizer(folder / "tokenizer.json", all_texts, VOCABULARY)
    return paths, Tokenize(tokenizer)


# The pipeline.


def to_features(element: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Cuts a document to a row; the targets are the inputs."""
    tokens = element["text"][:LENGTH]
    return {"inputs": tokens, "targets": tokens}


def shift(row: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Makes the target of each token the next token of its document.

    The last token of a document has no target: its segmentation is 0, as in padding.
    """
    segments = row["targets_segment_ids"]
    same = np.append(segments[1:] == segments[:-1], False) & (segments != 0)
    return {
        "inputs": row["inputs"],
        "inputs_position": row["inputs_positions"],
        "inputs_segmentation": row["inputs_segment_ids"],
        "targets": np.where(same, np.append(row["targets"][1:], 0), 0),
        "targets_position": row["targets_positions"],
        "targets_segmentation": np.where(same, segments, 0),
    }


def mixture(grain: Any, paths: list[str]) -> Any:
    """Returns an endless dataset of documents of all corpora, by weight."""
    parts = [
        grain.MapDataset.source(grain.sources.ArrayRecordDataSource(path))
        .shuffle(seed=SEED + number)
        .repeat()
        for number, path in enumerate(paths)
    ]
    return grain.MapDataset.mix(parts, weights=list(CORPORA.values()))


def rows(grain: Any, documents: Any, tokenize: Tokenize) -> Any:
    """Returns a dataset of packed and shifted rows, int64[128] and int32[128]."""
    dataset = documents.map(json.loads).map(tokenize).map(to_features)
    dataset = grain.experimental.FirstFitPackIterDataset(
        dataset.to_iter_dataset(grain.ReadOptions(num_threads=0)),
        length_struct={"inputs": LENGTH, "targets": LENGTH},
        num_packing_bins=PACKING_BINS,
    )
    return dataset.map(shift)


def batches_of_host(
    grain: Any, paths: list[str], tokenize: Tokenize, host: int, hosts: int
) -> Any:
    """Returns the batches of one host, which reads its share of the documents."""
    share = mixture(grain, paths)[host::hosts]
    dataset = rows(grain, share, tokenize)
    return dataset.batch(GLOBAL_BATCH // hosts, drop_remainder=True)


def elastic_batches(
    grain: Any, paths: list[str], tokenize: Tokenize, host: int, hosts: int
) -> Any:
    """Returns one host's batches of a stream of rows that all hosts share."""
    return grain.experimental.ElasticIterator(
        rows(grain, mixture(grain, paths), tokenize),
        GLOBAL_BATCH,
        grain.sharding.ShardOptions(shard_index=host, shard_count=hosts),
    )


# The run.


class Checkpoints:
    """Saves and restores an iterator with Orbax, or as JSON without Orbax."""

    def __init__(self, folder: pathlib.Path) -> None:
        self._folder = folder
        self._manager = None
        if importlib.util.find_spec("orbax"):
            import orbax.checkpoint as ocp

            self._manager = ocp.CheckpointManager(folder)

    def save(self, step: int, iterator: Any) -> None:
        if self._manager is None:
            path = self._folder / f"{step}.json"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(iterator.get_state()))
        else:
            saved = gristmill.checkpoint.CheckpointSave(iterator)
            self._manager.save(step, args=saved)
            self._manager.wait_until_finished()

    def restore(self, step: int, iterator: Any) -> None:
        if self._manager is None:
            path = self._folder / f"{step}.json"
            iterator.set_state(json.loads(path.read_text()))
        else:
            restored = gristmill.checkpoint.CheckpointRestore(iterator)
            self._manager.restore(step, args=restored)

    def close(self) -> None:
        if self._manager is not None:
            self._manager.close()


def take(iterator: Any, steps: int) -> list[np.ndarray]:
    """Returns the inputs of some batches, like a training loop."""
    return [np.array(batch["inputs"]) for batch in itertools.islice(iterator, steps)]


def have_equal_rows(left: list[np.ndarray], right: list[np.ndarray]) -> bool:
    return len(left) == len(right) and all(map(np.array_equal, left, right))


def stop_and_resume(host: int, dataset: Any, folder: pathlib.Path, steps: int) -> None:
    """Saves a host's state halfway and checks the rest of a new iterator."""
    checkpoints = Checkpoints(folder / f"host-{host}")
    iterator = iter(dataset)
    before = take(iterator, steps)
    checkpoints.save(steps, iterator)
    rest = take(iterator, steps)
    iterator.close()

    restored = iter(dataset)
    checkpoints.restore(steps, restored)
    if not have_equal_rows(take(restored, steps), rest):
        raise SystemExit(f"host {host} went on with other rows")
    restored.close()
    checkpoints.close()
    filled = np.mean([np.count_nonzero(inputs) for inputs in before])
    print(
        f"host {host}: {steps} steps of {before[0].shape[0]} rows, "
        f"{filled / before[0].size:.1%} of the cells hold tokens; "
        "after a restart the same rows follow"
    )


def change_hosts(paths: list[str], tokenize: Tokenize, steps: int) -> None:
    """Replaces two stopped hosts by three, and checks the rows."""

    def start_hosts(hosts: int, state: Any = None) -> list[Any]:
        iterators = [
            elastic_batches(gristmill, paths, tokenize, host, hosts)
            for host in range(hosts)
        ]
        if state is not None:
            for iterator in iterators:
                iterator.set_state(state)
        return iterators

    def global_batches(iterators: list[Any]) -> list[np.ndarray]:
        """Returns each step's rows of all hosts, in the order of the stream."""
        shares = [take(iterator, steps) for iterator in iterators]
        return [
            np.stack(step, axis=1).reshape(GLOBAL_BATCH, LENGTH)
            for step in zip(*shares, strict=True)
        ]

    two = start_hosts(2)
    batches = global_batches(two)
    state = json.loads(json.dumps(two[0].get_state()))
    batches += global_batches(start_hosts(3, state))
    (one,) = start_hosts(1)
    if not have_equal_rows(batches, take(one, 2 * steps)):
        raise SystemExit("a change of hosts lost or repeated rows")
    print(
        f"elastic: {steps} steps of 2 hosts, then {steps} of 3, gave the rows of"
        f" {2 * steps} steps of 1; the checkpoint was {len(json.dumps(state))} bytes"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=pathlib.Path, help="keep data and checkpoints")
    parser.add_argument("--hosts", type=int, default=2)
    parser.add_argument("--workers", type=int, default=2, help="processes of a host")
    parser.add_argument("--steps", type=int, default=10, help="before each stop")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = (options.data or pathlib.Path(temporary)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        paths, tokenize = write_corpora(folder)
        workers = gristmill.MultiprocessingOptions(num_workers=options.workers)
        for host in range(options.hosts):
            dataset = batches_of_host(gristmill, paths, tokenize, host, options.hosts)
            dataset = dataset.mp_prefetch(workers)
            stop_and_resume(host, dataset, folder, options.steps)
        change_hosts(paths, tokenize, options.steps)


if __name__ == "__main__":
    main()
