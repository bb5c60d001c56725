"""Measures the time to the first batch of packed text, with 16 workers.

Prints seconds from the call of iter() to the first batch of the text example, in a
process that has imported its library and the tokenizer; lower is better.

    python benchmarks/bench_text_first_batch.py
"""

import functools
import time
from collections.abc import Callable
from typing import Any

import text_question
from harness import AtLeast, Measurement, Question, Settings, main
from text_question import text_pipeline

WORKERS = 16


def _measure(load: Callable[[], Any], settings: Settings) -> Measurement:
    del settings
    library = load()
    data = text_question.text()
    dataset = text_pipeline.pipeline(library, data, text_question.BATCH_SIZE, WORKERS)
    start = time.perf_counter()
    batches = iter(dataset)
    first = next(batches)
    seconds = time.perf_counter() - start
    assert first["text"].shape == (text_question.BATCH_SIZE, text_pipeline.LENGTH)
    answers = {"first batch": text_question.digest([first])}
    batches.close()
    return Measurement(seconds, answers)


QUESTION = Question(
    name="text_first_batch",
    text="time to the first batch of the text example, 16 workers",
    unit="s",
    contestants={
        name: functools.partial(_measure, load)
        for name, load in text_question.LIBRARIES.items()
    },
    targets=(AtLeast(10, ("grain",)),),
)

if __name__ == "__main__":
    main(QUESTION)
