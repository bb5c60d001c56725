"""OLMo-core's packer of documents, the peer of planned packing."""

import numpy as np

from support import extras


def pack(lengths, capacity):
    """Pack documents into rows with OLMo-core's best-fit-decreasing packer.

    Args:
        lengths: The tokens of each document, shape (n,), from 1 to `capacity`.
        capacity: The tokens of a row, a power of 2.

    Returns:
        The numbers of the documents of each row, as lists in the order of the rows.
    """
    ends = np.cumsum(lengths, dtype=np.int64)
    spans = np.stack([ends - lengths, ends], axis=1)
    packer = extras.olmo_core("utils").InstancePacker(capacity)
    rows, sorted_spans, total = packer.pack_documents(spans)
    assert total == np.sum(lengths)
    # The packer numbers documents by decreasing length.
    documents = np.searchsorted(ends, sorted_spans[:, 1])
    return [documents[row].tolist() for row in rows]
