"""Text for benchmarks: documents and tokenizers, data once and stored.

They are in the temporary folder. The pipeline is that of the text example, through
Gristmill and Grain; for other pipelines see `bench_text_pack`.
"""

import os
import pathlib
import shutil
import sys
from collections.abc import Callable
from typing import Any

import peers
from dataset_question import digest
from record_files import FOLDER

EXAMPLES = pathlib.Path(__file__).resolve().parent.parent / "examples"
sys.path.insert(0, str(EXAMPLES))
import text_pipeline  # noqa: E402

DOCUMENTS = 20_000
BATCH_SIZE = 512
LIBRARIES: dict[str, Callable[[], Any]] = {
    "gristmill": peers.import_gristmill,
    "grain": peers.import_grain,
}


def text(vocabulary: int = text_pipeline.VOCABULARY) -> text_pipeline.Text:
    """Returns the example's data, written by the first process that needs it."""
    folder = FOLDER / f"text-{DOCUMENTS}-{vocabulary}"
    if not folder.exists():
        unfinished = pathlib.Path(f"{folder}.{os.getpid()}")
        text_pipeline.write_text(unfinished, DOCUMENTS, vocabulary)
        try:
            os.replace(unfinished, folder)
        except OSError:  # Another process was faster.
            shutil.rmtree(unfinished)
    return text_pipeline.Text(
        str(folder / "train.array_record"), str(folder / "tokenizer.json")
    )


def answers(library: Any, data: text_pipeline.Text) -> dict[str, str]:
    """Returns a digest of small batches, data without workers."""
    return {"batches": digest(iter(text_pipeline.pipeline(library, data, 16, 0)), 4)}
