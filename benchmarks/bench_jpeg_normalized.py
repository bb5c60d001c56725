"""Measures a JPEG file as normalized float32 of (3, 224, 224), with 2 workers.

Prints us of processor time per picture; lower is better. Like `bench_jpeg`; then values
are scaled, normalized by ImageNet's mean and deviation, and stored channel by channel,
by each library's own transforms, or by NumPy if it has none.

    python benchmarks/bench_jpeg_normalized.py
"""

import functools

from bench_jpeg import CONTESTANTS
from harness import GRAIN, AtLeast, Question, main
from jpeg_question import bare, measure, tree_seconds

QUESTION = Question(
    name="jpeg_normalized",
    text="the same to normalized float32 of (3, 224, 224)",
    unit="us of processor time/picture",
    contestants={
        **{
            name: functools.partial(measure, load, True, tree_seconds)
            for name, load in CONTESTANTS.items()
        },
        "bare": functools.partial(bare, True),
    },
    # The bare program does only this work, and is 1.7 times as fast as DALI.
    targets=(
        AtLeast(2, ("gristmill, Pillow", "torch", "torch, Pillow", *GRAIN)),
        AtLeast(1.5, ("dali",)),
        AtLeast(0.9, ("bare",)),
    ),
)

if __name__ == "__main__":
    main(QUESTION)
