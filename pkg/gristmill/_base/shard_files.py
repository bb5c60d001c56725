"""The files of a checkpoint that contain the positions of datasets split over hosts.

The names and contents match Grain's development version.
"""

from __future__ import annotations

import itertools
import json
from typing import Any


def has_shards(item: Any) -> bool:
    """Return whether an iterator has a position for each of several datasets."""
    if not hasattr(item, "shard_options"):
        return False
    try:
        item.get_shard_states()
    except (AttributeError, NotImplementedError):
        return False
    return True


def save_shards(directory: Any, item: Any) -> None:
    """Write the positions of a host's datasets.

    Args:
        directory: The folder, a ``pathlib.Path`` or an object with its methods.
        item: An `ElasticIterator` whose datasets are split over the hosts.
    """
    for number, state in item.get_shard_states().items():
        text = json.dumps(state, indent=4)
        _file_of(directory, number).write_text(text)


def restore_shards(directory: Any, item: Any) -> None:
    """Set the positions of a host's datasets, which other hosts may have saved.

    Args:
        directory: The folder that all hosts have written to.
        item: An `ElasticIterator` whose datasets are split over the hosts.
    """
    shard = item.shard_options
    numbers = itertools.count(shard.shard_index, shard.shard_count)
    files = ((number, _file_of(directory, number)) for number in numbers)
    existing = itertools.takewhile(lambda pair: pair[1].exists(), files)
    item.set_shard_states({n: json.loads(file.read_text()) for n, file in existing})


def saved_process_count(directory: Any) -> int:
    """Return the number of processes that have saved to a folder."""
    names = [file.stem for file in directory.glob("process_*-of-*.json")]
    return max((int(name.rpartition("-of-")[2]) for name in names), default=0)


def _file_of(directory: Any, number: int) -> Any:
    return directory / f"shard_state_{number}.json"
