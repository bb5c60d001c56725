"""Makes batches of elements of similar lengths."""

from __future__ import annotations

from typing import Any

from gristmill import batching
from gristmill.transforms._bucket import BucketBatch


class BucketBatches:
    """Chooses buckets and makes batches for a `transforms.BucketBatch`.

    Attributes:
        sizes: The batch size of each bucket.
    """

    def __init__(self, spec: BucketBatch) -> None:
        self._spec = spec
        self._buckets = spec.buckets()
        self.sizes = self._buckets.sizes

    def bucket_of(self, element: Any) -> int:
        """Return the number of an element's bucket."""
        return self._buckets.of(self._spec.element_length_func(element))

    def batch(self, elements: list[Any], bucket: int) -> Any:
        """Return the batch of some elements of a bucket."""
        spec = self._spec
        if spec.batch_fn is not None:
            return spec.batch_fn(elements)
        length = None  # Pad to the longest element.
        if spec.pad_to_bucket_boundary:
            length = self._buckets.boundaries[bucket] - 1
        return batching.padded_batch(
            elements, length=length, padding_values=spec.padding_values
        )
