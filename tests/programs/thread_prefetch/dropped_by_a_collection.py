"""Drops an iterator like a garbage collection inside `threading.enumerate()`."""

import threading

import gristmill
from gristmill.experimental import ThreadPrefetchIterDataset

numbers = gristmill.MapDataset.range(9).to_iter_dataset()
iterator = iter(ThreadPrefetchIterDataset(numbers, prefetch_buffer_size=2))
print(next(iterator))
with threading._active_limbo_lock:  # The prefetch thread needs this lock to end.
    del iterator
print("dropped")
