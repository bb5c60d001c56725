"""Implementation of sources.GPTDataSource: the samples of Megatron's GPTDataset."""

from __future__ import annotations

import operator
import os
from typing import Any, SupportsIndex

import numpy as np
import numpy.typing as npt

from gristmill import _core
from gristmill._base.argument_checks import check_flag, check_integer
from gristmill._base.types import Int64Array
from gristmill.sources._gpt_order import SUBSETS, count_rows, subset_range
from gristmill.sources._row_source import Documents, Lengths, RowSource

__all__ = ["GPTDataSource"]

Sample = dict[str, npt.NDArray[Any]]
MAX_COUNT = 2**32  # Documents and rows are uint32 in the index.
FLAGS = (
    "reset_position_ids",
    "reset_attention_mask",
    "eod_mask_loss",
    "create_attention_mask",
    "drop_last_partial_validation_sequence",
    "add_extra_token_to_sequence",
)


class GPTDataSource(RowSource[Sample]):
    """Serve the samples of Megatron's `GPTDataset`, in its order.

    A training run that Megatron started continues with the same samples: record ``k``
    has the arrays of ``dataset[k]``.  The arguments have the names of the fields of
    Megatron's `GPTDatasetConfig`, apart from `seed`, which is `random_seed`.

    Args:
        source: The documents: a `MegatronDataSource` with ``unit="sequence"``, or
            another source of tokens.
        sequence_length: Tokens of a sample.
        seed: From 0 to 2**32 - 1.
        num_samples: The samples that are needed, at least: documents are repeated for
            as many epochs.  None for those of one epoch.
        split: The shares of the documents for training, validation and test, such as
            "99,1,0".  None if the source has only documents of `subset`.
        subset: "train", "valid" or "test".
        eod_id: The token that ends a document, which `reset_position_ids`,
            `reset_attention_mask` and `eod_mask_loss` need.
        pad_id: The padding token of the tokenizer.  It is replaced by 0, and has no
            loss.  -1 without one, or if it is also another special token.
        reset_position_ids: Whether positions restart after each `eod_id`.
        reset_attention_mask: Whether tokens attend only to their own document.
        eod_mask_loss: Whether `eod_id` has no loss.
        create_attention_mask: Whether samples have an attention mask, of
            ``sequence_length ** 2`` bytes.  Megatron's default is True.
        drop_last_partial_validation_sequence: Whether the last sample of "valid" is
            dropped if it is incomplete.
        add_extra_token_to_sequence: Whether the last label is the first token of the
            next sample.
        index_dir: The folder for the index, created if it is missing.  None for the
            folder of the data set, or if that is not writable, for that of the
            environment variable ``GRISTMILL_CACHE_DIR``.

    Record ``k`` is a dict of "tokens" and "labels", int64 of shape ``(n,)``;
    "attention_mask", bool of shape ``(1, n, n)``, True for tokens to ignore; and
    "loss_mask", float32, and "position_ids", int64, of shape ``(n,)``.

    The index takes 4 bytes for each document of each epoch and 12 for each sample, in
    a file that all processes map; one of less than 1 MiB is not saved.  A thread saves
    it, and the exit of the process waits for the thread.  It is built again if the
    lengths of the documents or the arguments change.

    Raises:
        TypeError: An argument has another type.
        ValueError: A number is out of range, an option is unknown, `eod_id` is
            missing, or the subset has no tokens.
        OSError: A file cannot be opened.
        CorruptRecord: An index of the source is damaged.

    Example:
        >>> import pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp(), "part-0.npy")
        >>> np.array([5, 6, 0, 7, 8, 9, 0], np.uint16).tofile(path)
        >>> documents = gristmill.sources.TokenArrayDataSource(path, "uint16", eos_id=0)
        >>> samples = gristmill.sources.GPTDataSource(documents, 3, seed=1234)
        >>> len(samples), samples[0]["tokens"], samples[0]["labels"]
        (2, array([5, 6, 0]), array([6, 0, 7]))
    """

    __module__ = __name__.rpartition(".")[0]  # The name in pickles.

    def __init__(  # noqa: PLR0913 (Megatron's arguments)
        self,
        source: Documents,
        sequence_length: SupportsIndex,
        *,
        seed: int,
        num_samples: int | None = None,
        split: str | None = None,
        subset: str = "train",
        eod_id: int | None = None,
        pad_id: int = -1,
        reset_position_ids: bool = False,
        reset_attention_mask: bool = False,
        eod_mask_loss: bool = False,
        create_attention_mask: bool = False,
        drop_last_partial_validation_sequence: bool = True,
        add_extra_token_to_sequence: bool = True,
        index_dir: str | os.PathLike[str] | None = None,
    ) -> None:
        super().__init__(source, sequence_length, index_dir)
        check_integer("seed", seed)
        if not 0 <= seed < 2**32:
            raise ValueError(f"seed must be from 0 to 2**32 - 1, got {seed}.")
        if num_samples is not None:
            check_integer("num_samples", num_samples)
            if num_samples < 0:
                raise ValueError(f"num_samples must be >= 0, got {num_samples}.")
        if subset not in SUBSETS:
            raise ValueError(
                f"subset must be 'train', 'valid' or 'test', got {subset!r}."
            )
        if split is not None and not isinstance(split, str):
            raise TypeError(f"split must be a str or None, got {type(split).__name__}.")
        check_integer("pad_id", pad_id)
        if eod_id is not None:
            check_integer("eod_id", eod_id)
        self._seed = operator.index(seed)
        self._num_samples = None if num_samples is None else operator.index(num_samples)
        self._split, self._subset = split, subset
        self._eod_id, self._pad_id = eod_id, operator.index(pad_id)
        self._flags: dict[str, bool] = {}
        for name, value in zip(
            FLAGS,
            (
                reset_position_ids,
                reset_attention_mask,
                eod_mask_loss,
                create_attention_mask,
                drop_last_partial_validation_sequence,
                add_extra_token_to_sequence,
            ),
            strict=True,
        ):
            check_flag(name, value)
            self._flags[name] = bool(value)
        for name in FLAGS[:3]:
            if self._flags[name] and eod_id is None:
                raise ValueError(f"eod_id must be an int, because {name} needs it.")
        self._open()

    def _arguments(self) -> dict[str, Any]:
        return super()._arguments() | {
            "seed": self._seed,
            "num_samples": self._num_samples,
            "split": self._split,
            "subset": self._subset,
            "eod_id": self._eod_id,
            "pad_id": self._pad_id,
            **self._flags,
        }

    def _open_rows(self, lengths: Lengths) -> tuple[int, _core.TokenRows]:
        first, end = subset_range(self._split, self._subset, len(lengths))
        lengths = lengths[first:end]
        tokens, longest, digest = self._summarize(lengths)
        if tokens == 0:
            raise ValueError(
                f"source must have tokens for {self._subset!r}, got none in"
                f" {len(lengths)} documents of {self._source.paths[0]}."
            )
        extra = self._flags["add_extra_token_to_sequence"]
        drop_last = (
            self._subset != "valid"
            or self._flags["drop_last_partial_validation_sequence"]
        )
        counts = count_rows(
            tokens, self._sequence_length, self._num_samples, extra, drop_last
        )
        documents = len(lengths) * counts.epochs
        if documents >= MAX_COUNT or counts.rows >= MAX_COUNT:
            raise ValueError(
                "a GPTDataSource must have less than 2**32 documents and rows, got"
                f" {documents} documents in {counts.epochs} epochs and {counts.rows}"
                " rows. Decrease num_samples, or split the data set."
            )
        rule = _core.ShuffleRule(
            seed=self._seed,
            row_tokens=self._sequence_length,
            has_extra_token=extra,
            epochs=counts.epochs,
            first_epochs=counts.first_epochs,
            rows=counts.rows,
            first_rows=counts.first_rows,
            tokens=tokens,
        )
        index_bytes = 4 * documents + 12 * counts.rows
        place = self._place(
            (
                str(lengths.dtype),
                self._sequence_length,
                self._seed,
                extra,
                counts,
                digest,
            ),
            index_bytes,
        )
        rows = _core.TokenRows.shuffled(lengths, longest, rule, place)
        self._warn_if_not_saved(rows, index_bytes)
        self._first_document = first
        return place.key, rows

    def _read(self, keys: Int64Array) -> list[Sample]:
        width = self._sequence_length + self._flags["add_extra_token_to_sequence"]
        texts = self._texts(keys, width, np.int64, self._pad_id)
        # Each sample has its own memory, which is faster than large arrays.
        return [self._sample(text) for text in texts]

    def _sample(self, text: Int64Array) -> Sample:
        """Return the fields of a sample from its tokens, int64."""
        length = self._sequence_length
        tokens = text[:length].copy()
        labels = np.empty(length, np.int64)
        labels[:-1] = text[1:length]
        labels[-1] = text[length] if len(text) > length else self._pad_id
        fields: Sample = {"tokens": tokens, "labels": labels}
        loss_mask = np.ones(length, np.float32)
        positions = np.arange(length)
        after_eod = np.zeros(length, np.bool_)
        if self._eod_id is not None:
            is_eod = tokens == self._eod_id
            if self._flags["eod_mask_loss"]:
                loss_mask[is_eod] = 0
            after_eod[1:] = is_eod[:-1]
        if self._flags["create_attention_mask"]:
            mask = np.triu(np.ones((length, length), np.bool_), 1)
            if self._flags["reset_attention_mask"]:
                documents = np.cumsum(after_eod)
                mask |= documents[:, None] != documents
            fields["attention_mask"] = mask[None]
        if self._flags["reset_position_ids"]:
            positions -= np.maximum.accumulate(np.where(after_eod, positions, 0))
        is_pad = labels == self._pad_id
        loss_mask[is_pad] = 0
        labels[is_pad] = 0
        tokens[tokens == self._pad_id] = 0
        return fields | {"loss_mask": loss_mask, "position_ids": positions}
