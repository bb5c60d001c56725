"""Measures records from a server that answers after 20 ms.

The server is a separate process (`far_server.py`); `far_files.py` makes the files.
"""

import contextlib
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import far_files
import far_peers
import far_server
from harness import Measurement, Settings, seconds_per_batch

# By then the store has reached its maximum of concurrent requests.
WARM = 40
SECONDS = 4


def _measure(batches: Iterator[Any], settings: Settings, warm: int) -> Measurement:
    seconds = seconds_per_batch(batches, SECONDS * settings.seconds, warm=warm)
    return Measurement(seconds / far_files.BATCH * 1e6)


def far(load: Callable[[str], Iterator[Any]], settings: Settings) -> Measurement:
    """Returns us of wall time per record, for batches that `load` reads by URL."""
    with far_server.running(far_files.folder()) as url:
        return _measure(load(url), settings, WARM)


def local(load: Callable[[str], Iterator[Any]], settings: Settings) -> Measurement:
    """Measures like `far`, from the folder itself."""
    return _measure(load(str(far_files.folder())), settings, WARM)


def again(settings: Settings) -> Measurement:
    """Measures like `far`, Gristmill's second and later epochs with a cache."""
    with contextlib.ExitStack() as stack:
        url = stack.enter_context(far_server.running(far_files.folder()))
        cache = stack.enter_context(tempfile.TemporaryDirectory())
        for _ in far_peers.gristmill(url, cache_dir=cache, epochs=1):
            pass
        batches = far_peers.gristmill(url, cache_dir=cache)
        return _measure(batches, settings, WARM)
