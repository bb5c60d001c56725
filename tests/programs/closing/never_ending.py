"""Ends while a thread computes an element that never ends."""

import sys
import threading

import gristmill

reached = threading.Event()


def call(x):
    if x == 1:
        reached.set()
        threading.Event().wait()
    return x


dataset = gristmill.MapDataset.range(100).map(call)
if sys.argv[1] == "read":
    options = gristmill.ReadOptions(num_threads=4, prefetch_buffer_size=8)
    dataset = dataset.to_iter_dataset(options)
else:
    dataset = gristmill.experimental.ThreadPrefetchIterDataset(
        dataset.to_iter_dataset(), prefetch_buffer_size=4
    )
iterator = iter(dataset)
iterator.start_prefetch()
reached.wait()
if sys.argv[1] == "left":
    iterator.close()
print("ends")
