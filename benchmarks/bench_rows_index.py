"""Measures the index of the samples of Megatron's GPTDataset, for one epoch.

Prints ns of CPU time per document, of all threads; lower is better.  10 M documents
(--records), whose lengths are in memory; nothing is saved.  "megatron" calls the
functions and the C++ helper of megatron.core that build the same three arrays.

    python benchmarks/bench_rows_index.py
"""

import time

import numpy as np

import token_rows
from harness import AtLeast, AtMost, Measurement, Question, Settings, main

DOCUMENTS = 10_000_000
REPEATS = 3  # The first one also allocates memory.


def _gristmill(settings: Settings) -> Measurement:
    from gristmill import _core
    from gristmill.sources._gpt_order import count_rows

    lengths = token_rows.lengths_of(settings.records or DOCUMENTS)

    def build() -> _core.TokenRows:
        tokens, longest, _ = _core.summarize_lengths(lengths)
        counts = count_rows(tokens, token_rows.SEQUENCE_LENGTH, None, True, True)
        rule = _core.ShuffleRule(
            seed=token_rows.SEED,
            row_tokens=token_rows.SEQUENCE_LENGTH,
            has_extra_token=True,
            epochs=counts.epochs,
            first_epochs=counts.first_epochs,
            rows=counts.rows,
            first_rows=counts.first_rows,
            tokens=tokens,
        )
        place = _core.ArrayPlace(0, [], "")
        return _core.TokenRows.shuffled(lengths, longest, rule, place)

    times = []
    for _ in range(REPEATS):
        begin = time.process_time()
        rows = build()
        times.append(time.process_time() - begin)
    arrays = [np.frombuffer(rows.array(i), np.uint32) for i in range(3)]
    answers = {"index": token_rows.digest(*arrays)}
    return Measurement(min(times) / len(lengths) * 1e9, answers)


def _megatron(settings: Settings) -> Measurement:
    module = token_rows.import_megatron()
    from megatron.core.datasets import helpers

    lengths = token_rows.lengths_of(settings.records or DOCUMENTS)
    documents = np.arange(len(lengths), dtype=np.int32)
    begin = time.process_time()
    tokens = int(np.sum(lengths[documents]))
    state = np.random.RandomState(token_rows.SEED)
    order = module._build_document_index(documents, 1, state, False)
    starts = helpers.build_sample_idx(
        lengths, order, token_rows.SEQUENCE_LENGTH, 1, tokens, True, True
    )
    count = len(starts) - 1
    shuffled = module._build_shuffle_index(count, count, state)
    seconds = time.process_time() - begin
    answers = {"index": token_rows.digest(order, starts[:-1], shuffled)}
    return Measurement(seconds / len(lengths) * 1e9, answers)


QUESTION = Question(
    name="rows_index",
    text="index of Megatron's samples, 10 M documents, CPU time",
    unit="ns/document",
    contestants={"gristmill": _gristmill, "megatron": _megatron},
    targets=(AtMost(15), AtLeast(3, ("megatron",))),
)

if __name__ == "__main__":
    main(QUESTION)
