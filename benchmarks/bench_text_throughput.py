"""Measures a row of packed text, with 2 workers.

Prints us per row of 128 tokens; lower is better.  The pipeline of the text example:
JSON in ArrayRecord, a byte-pair encoding, first-fit packing, batches of 512 rows.  The
tokenizer is the same for both.

    python benchmarks/bench_text_throughput.py
"""

import functools
from collections.abc import Callable
from typing import Any

import text_question
from harness import AtLeast, Measurement, Question, Settings, main, seconds_per_batch
from text_question import text_pipeline

WORKERS = 2


def _measure(load: Callable[[], Any], settings: Settings) -> Measurement:
    library = load()
    data = text_question.text()
    answers = text_question.answers(library, data)
    dataset = text_pipeline.pipeline(library, data, text_question.BATCH_SIZE, WORKERS)
    batches = iter(dataset)
    seconds = seconds_per_batch(batches, 4 * settings.seconds, warm=2 * WORKERS)
    batches.close()
    return Measurement(seconds / text_question.BATCH_SIZE * 1e6, answers)


QUESTION = Question(
    name="text_throughput",
    text="packed text of the text example, batch 512, 2 workers",
    unit="us/row",
    contestants={
        name: functools.partial(_measure, load)
        for name, load in text_question.LIBRARIES.items()
    },
    targets=(AtLeast(2, ("grain",)),),
)

if __name__ == "__main__":
    main(QUESTION)
