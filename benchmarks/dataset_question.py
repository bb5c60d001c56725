"""A question about a chain of datasets, for Gristmill and for Grain.

A ``bench_dataset_<question>.py`` defines the chain; the same function builds it with
either library.
"""

import functools
import itertools
import zlib
from collections.abc import Callable, Generator
from typing import Any

import peers
from harness import AtLeast, Measurement, Question, Settings, seconds_per_batch
from workloads import BATCH, leaves

CHECKED_BATCHES = 16
# Grain runs with its default threads, and without threads.
READ_OPTIONS: dict[str, tuple[int, int] | None] = {"default": None, "(0, 0)": (0, 0)}
Build = Callable[[Any], Any]


def digest(batches: Any, count: int = CHECKED_BATCHES) -> str:
    """Returns a digest of the bytes, dtypes and shapes of the first batches."""
    checksum = 0
    for batch in itertools.islice(batches, count):
        for array in leaves(batch):
            shape = f"{array.dtype.str} {array.shape}".encode()
            checksum = zlib.crc32(array.tobytes(), zlib.crc32(shape, checksum))
    return f"{checksum:x}"


def _endless(build: Build, library: Any) -> Generator[Any, None, None]:
    """Yields batches, and reads the dataset again when it ends."""
    while True:
        yield from iter(build(library))


def measure_chain(
    import_library: Callable[[], Any], build: Build, stream: str, settings: Settings
) -> Measurement:
    """Measure the time per element of a chain; `stream` names its elements."""
    library = import_library()
    checked = iter(build(library))
    answers = {stream: digest(checked)}
    checked.close()
    batches = _endless(build, library)
    seconds = seconds_per_batch(batches, settings.seconds)
    batches.close()
    return Measurement(seconds / BATCH * 1e9, answers)


def make_question(
    name: str, text: str, builds: dict[str, Build], targets: tuple[AtLeast, ...]
) -> Question:
    """Returns a question for the time per element, in batches of 256.

    `builds` maps names to functions that make an IterDataset of batches from a library.
    """
    contestants = {
        f"{library} {how}".rstrip(): functools.partial(measure_chain, load, build, how)
        for library, load in (
            ("gristmill", peers.import_gristmill),
            ("grain", peers.import_grain),
        )
        for how, build in builds.items()
    }
    return Question(
        name=name,
        text=text,
        unit="ns/element",
        contestants=contestants,
        targets=targets,
    )
