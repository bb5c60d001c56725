"""The tutorial about debugging a pipeline: its graph, and its time per stage."""

import logging

import pytest


@pytest.fixture
def setting(grain):
    """Return a function that sets one of the library's settings during a test."""
    names = []

    def update(name, value):
        names.append((name, getattr(grain.config, name)))
        grain.config.update(name, value)

    yield update
    for name, value in names:
        grain.config.update(name, value)


@pytest.fixture
def logged(caplog):
    caplog.set_level(logging.INFO)
    return lambda: "\n".join(record.getMessage() for record in caplog.records)


def test_visualization_logs_the_graph_with_the_first_element(grain, setting, logged):
    setting("py_dataset_visualization_output_dir", "")
    dataset = (
        grain.MapDataset.range(20)
        .seed(seed=42)
        .shuffle()
        .batch(batch_size=2)
        .map(lambda x: x)
        .to_iter_dataset()
    )
    iterator = iter(dataset)
    assert "dataset graph" not in logged().lower()
    for _ in range(10):
        next(iterator)
    text = logged()
    assert text.lower().count("dataset graph") == 1
    stages = [
        "RangeMapDataset",
        "ShuffleMapDataset",
        "BatchMapDataset",
        "MapMapDataset",
    ]
    places = [text.index(stage) for stage in stages]
    assert places == sorted(places)
    assert "int64[2]" in text


def test_debug_mode_does_not_change_the_elements(grain, setting):
    def pipeline():
        dataset = grain.MapDataset.range(20).seed(seed=42).shuffle().batch(2)
        dataset = dataset.map(lambda x: x).to_iter_dataset().map(lambda x: x)
        return [batch.tolist() for batch in dataset]

    plain = pipeline()
    setting("py_debug_mode", True)
    assert pipeline() == plain
    assert plain[0] == [1, 7]
