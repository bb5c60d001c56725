"""pick_performance_config chooses workers and buffers by element size."""

import os

import numpy as np
import pytest

import gristmill
from gristmill.experimental import PerformanceConfig, pick_performance_config
from support.twins import grain


def make(lib, megabytes, count):
    row = np.zeros(int(megabytes * 2**20), np.uint8)
    ds = lib.MapDataset.source([{"x": row, "y": [row]}] * count)
    return ds.to_iter_dataset().batch(2)


@pytest.mark.parametrize(
    ("megabytes", "count", "budget", "workers", "buffer"),
    [(0.5, 20, 10, 9, None), (0.5, 20, 10, 3, 4), (1, 20, 3, None, 8), (1, 4, 3, 5, 6)],
)
def test_choices_match_grain(megabytes, count, budget, workers, buffer):
    def choice(lib):
        config = lib.experimental.pick_performance_config(
            make(lib, megabytes, count),
            ram_budget_mb=budget,
            max_workers=workers,
            max_buffer_size=buffer,
        )
        return (
            config.multiprocessing_options.num_workers,
            config.read_options.prefetch_buffer_size,
        )

    assert choice(gristmill) == choice(grain())


def test_too_few_elements_limit_nothing():
    ds = gristmill.MapDataset.range(2).to_iter_dataset()
    config = pick_performance_config(
        ds, ram_budget_mb=1, max_workers=None, max_buffer_size=None
    )
    assert config.multiprocessing_options.num_workers == os.cpu_count()
    assert config.read_options.prefetch_buffer_size == 1000


def test_config_defaults_are_none():
    assert PerformanceConfig() == PerformanceConfig(
        multiprocessing_options=None, read_options=None
    )
