"""Measures the way of a JPEG file to a training batch, with 2 workers.

Prints us of processor time per picture, of all processes together; lower is better.
Files of 500 x 375 pixels, shuffled. Each is cropped at a random size, resized to 224 x
224 with antialiasing, and flipped half the time; batches of 128, one byte a page read
by the consumer. "gristmill, Pillow" and Grain run the same functions by hand. "torch"
is torchvision's decode_jpeg and transforms v2 under torch's DataLoader, "dali" DALI's
pipeline on the CPU with 2 threads. "bare" is 2 processes of a C program on
libjpeg-turbo that does only the same work, without a consumer.

    python benchmarks/bench_jpeg.py
"""

import functools

import jpeg_peers
from harness import GRAIN, AtLeast, Question, main
from jpeg_question import bare, measure, tree_seconds

CONTESTANTS = {"gristmill": jpeg_peers.gristmill, **jpeg_peers.PEERS}

QUESTION = Question(
    name="jpeg",
    text="JPEG 500x375, random crop to 224, flip, batch 128, 2 workers",
    unit="us of processor time/picture",
    contestants={
        **{
            name: functools.partial(measure, load, False, tree_seconds)
            for name, load in CONTESTANTS.items()
        },
        "bare": functools.partial(bare, False),
    },
    targets=(
        AtLeast(2, ("gristmill, Pillow",)),
        AtLeast(1.5, ("torch",)),
        AtLeast(1.5, ("dali",)),
        AtLeast(2.5, GRAIN),
        AtLeast(0.9, ("bare",)),
    ),
)

if __name__ == "__main__":
    main(QUESTION)
