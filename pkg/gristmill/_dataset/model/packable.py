"""The methods of a dataset that pack elements of known lengths into rows."""

# mypy: disable-error-code="no-any-return"
# `build` returns Any.

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, Generic, Literal, NamedTuple, TypedDict, TypeVar, Unpack

import numpy as np
import numpy.typing as npt

from gristmill._base.types import Int64Array
from gristmill._dataset.model.configurable import Configurable, DatasetT
from gristmill._dataset.model.node import Dataset, build, chain_of
from gristmill.sharding import ShardOptions

PackedT = TypeVar("PackedT")


class Packing(TypedDict, total=False):
    """Arguments of `pack` that are given by name."""

    method: Literal["best_fit", "first_fit", "longest_first", "split"]
    long_documents: Literal["cut", "drop"]
    window: int
    seed: int | None
    num_epochs: int
    cost: Literal["tokens", "attention"] | Callable[[Int64Array], npt.ArrayLike] | None
    global_batch_size: int | None
    counts_path: str | os.PathLike[str] | None
    padding_struct: Any
    cu_seqlens: int | None


class PackCounts(NamedTuple):
    """The numbers of packed rows and their tokens, of all epochs together.

    Attributes:
        rows: The number of rows.
        packed_tokens: The number of tokens in them, without padding. Tokens are the
            cells of the first feature.
        density: Their share of all its cells.
        long_documents: The number of documents that are longer than a row, in any
            feature.
        dropped_documents: The number of those that are in no row.
        dropped_tokens: The number of tokens of the dropped documents.
        empty_documents: The number of documents without cells in any feature.
    """

    rows: int
    packed_tokens: int
    density: float
    long_documents: int
    dropped_documents: int
    dropped_tokens: int
    empty_documents: int


class Packable(Configurable[DatasetT], Dataset, Generic[DatasetT, PackedT]):
    """A dataset whose elements can be packed; `nodes/plan_packing.py` does it.

    `PackedT` is the class of the packed dataset.
    """

    def pack(
        self,
        length_struct: int | Mapping[str, int],
        lengths: npt.ArrayLike | Mapping[str, npt.ArrayLike] | None = None,
        **how: Unpack[Packing],
    ) -> PackedT:
        """Pack documents of known lengths into rows that have indices.

        A plan assigns the documents to rows from their lengths alone, a window of
        documents at a time.  So row k is a function of k: the number of rows is
        known, and slices, `shuffle`, `shard`, `batch` and any number of workers and
        ranks may follow.

        Documents are arrays, or dicts of arrays.  The features of `length_struct` are
        concatenated along their first axis; others are dropped.  A row is a dict; for
        a feature ``k`` with documents of shape ``(n, *S)`` it has

        - ``k``: shape ``(length, *S)`` and the dtype of the row's first document;
        - ``k_segment_ids``: int32, shape ``(length,)``: 1 for the cells of the row's
          first document, 2 for those of its second, ..., 0 for padding;
        - ``k_positions``: int32, shape ``(length,)``: 0, 1, 2, ... in each of them;

        and for the first feature

        - ``k_loss_mask``: bool, shape ``(length,)``: false for padding and for the
          first cell of each segment, which nothing in the row predicts.

        If the source has tokens (`sources.MegatronDataSource`,
        `sources.TokenArrayDataSource`) and no step follows it, only the parts of
        documents that a row needs are read.

        Args:
            length_struct: The number of cells in a row, at least 1; or a dict of it, if
                documents are dicts.  Features without lengths of their own are cut at
                the same cells as the first one, so they have equal numbers.  Documents
                that are arrays become ``tokens``.
            lengths: The number of tokens of each document, ints of shape ``(n,)``, such
                as from `measure_lengths`.  None if the source, or each source of a
                `mix`, has tokens, or the mix counts them.  A dict of lengths by feature
                if features have different ones, such as tokens and images.  A document
                then goes into a row only if all its features fit.  Only the first
                feature, which must be in the dict if its lengths are not known, is cut:
                the row with a document's first token has all cells of the others.  A
                document has the same number in the segment ids of all features.  Leave
                features out of the dict that are cut like the first one.
            **how: By name:

                - method: "best_fit" (by default) packs the longest documents of a
                  window first, each into the fullest row with room for it;
                  "longest_first" fills row by row with the longest that fit;
                  "first_fit" packs documents in their order into the first row with
                  room; "split" concatenates them and cuts them at the ends of rows.
                  With lengths by feature, "best_fit" is the same as "longest_first",
                  lengths are compared in the scarcest feature, in which the remaining
                  documents need the most rows, and "first_fit" may miss a row if very
                  many rows have room in some features only.
                - long_documents: Whether documents longer than a row are "cut" into
                  rows and a rest (by default), or are "drop"ped.  If any other feature
                  than the first one is longer than a row, "cut" is an error.
                - window: The most documents that are packed together, by default
                  262,144.
                - seed: Shuffles documents and rows, in each epoch differently; an int
                  in [0, 2**32).  None, the default, keeps their order.  A `shuffle`
                  after this is slow: it visits another window with each row.
                - num_epochs: The number of times to pack all documents, by default 1.
                  `repeat` would return the same rows again.
                - cost: What a segment of each length costs: "tokens" (its length),
                  "attention" (its square), or a function of an array of lengths.  Only
                  the first feature counts.  The rows of a global batch then have
                  similar costs, and `deal` gives each rank rows of nearly the same
                  total cost.
                - global_batch_size: The number of rows that all ranks together take in
                  a step, for `cost` and `deal`.
                - counts_path: A file that keeps the numbers of rows.  Without it, each
                  process that needs the length of the dataset plans all documents,
                  which takes seconds for 10**8 of them.  A file of another plan is
                  replaced.
                - padding_struct: The value of unused cells, or a dict of it; None, also
                  for single features, for zeros.
                - cu_seqlens: The number of entries of ``k_cu_seqlens``, int32, for
                  attention of variable length: the bounds of the row's segments, with
                  padding as a segment, but without documents that have no cells in
                  ``k``, and the length of the row in all further entries.
                  ``k_max_seqlen``, int32, is the length of the longest segment.
                  ``length + 1`` entries are always enough.

        Returns:
            The dataset of rows.

        Raises:
            TypeError: An argument has the wrong type, or lengths are not known.
            ValueError: An argument is out of range, lengths do not match the documents,
                or documents may be dropped or have other lengths in each epoch.  A
                feature that is not cut is longer than a row.  At iteration: a document
                has another length.

        Example:
            >>> texts = [np.arange(1, n) for n in (4, 6, 3)]
            >>> ds = gristmill.MapDataset.source(texts)
            >>> rows = ds.pack(5, lengths=[3, 5, 2])
            >>> rows[0]["tokens"].tolist(), rows[0]["tokens_segment_ids"].tolist()
            ([1, 2, 3, 1, 2], [1, 1, 1, 2, 2])
        """
        return build("MapDataset.pack", self, length_struct, lengths, **how)

    def deal(self, shard_options: ShardOptions) -> DatasetT:
        """Keep the rows that one rank gets of each global batch of `pack`.

        Global batch s is the rows ``[s * G, (s + 1) * G)`` of `pack`, for G
        ``global_batch_size``, on any number of ranks.  Each rank gets ``G / R`` of
        them, so that the costs of ranks are similar.  Batch them by ``G / R``: element
        s is then this rank's part of global batch s, and a state continues with
        any number of ranks that divides G.  An incomplete last global batch is dropped.

        Args:
            shard_options: The rank and their number R. Its drop_remainder is not used.

        Returns:
            The rank's rows, ``G / R`` of each global batch.

        Raises:
            TypeError: The dataset is not `pack`, possibly with maps after it.
            ValueError: R does not divide G, or `pack` got no G.

        Example:
            >>> ds = gristmill.MapDataset.source([np.ones(n) for n in (9, 7, 5, 5)])
            >>> rows = ds.pack(9, [9, 7, 5, 5], cost="attention", global_batch_size=4)
            >>> rank = gristmill.sharding.ShardOptions(shard_index=0, shard_count=2)
            >>> [int(row["tokens"].sum()) for row in rows.deal(rank)]
            [5, 9]
        """
        return build("MapDataset.deal", self, shard_options)

    def pack_counts(self) -> PackCounts:
        """Count the rows of `pack`, before this dataset, and their tokens.

        Only the lengths of documents are read.

        Returns:
            The numbers of rows, of their tokens, and of long and dropped documents, of
            all epochs together.

        Raises:
            ValueError: The chain has no `pack`.
        """
        for node in chain_of(self):
            if isinstance(counts := getattr(node, "_counts", None), PackCounts):
                return counts
        raise ValueError(f"pack_counts needs a chain with pack, got {self}.")

    def measure_lengths(
        self,
        path: str | os.PathLike[str],
        *,
        feature: str | None = None,
        num_workers: int = 0,
    ) -> npt.NDArray[np.int32]:
        """Measure the lengths of all elements, once, and keep them in a file.

        If the file exists, it is mapped, and all processes share its memory.  Some
        elements are then measured again to detect that the data has changed.

        Args:
            path: The ``.npy`` file, which is written when it does not exist.
            feature: The key of the feature to measure, if elements are dicts.
            num_workers: The worker processes that compute the elements.

        Returns:
            Read-only int32 of shape ``(n,)``: the length of each element's first axis,
            for `pack`.

        Raises:
            TypeError: An element is not an array, or does not have the `feature`.
            ValueError: The dataset is empty, or may drop elements; or the file was made
                from other data or by another program.
            OSError: The file cannot be read or written.

        Example:
            >>> import pathlib, tempfile
            >>> path = pathlib.Path(tempfile.mkdtemp(), "lengths.npy")
            >>> ds = gristmill.MapDataset.source([np.zeros(3), np.zeros(5)])
            >>> ds.measure_lengths(path).tolist()
            [3, 5]
        """
        how = {"feature": feature, "num_workers": num_workers}
        return build("MapDataset.measure_lengths", self, path, **how)
