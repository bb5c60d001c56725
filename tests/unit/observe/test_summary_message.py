"""Tests that execution summaries and their table match Grain's."""

import numpy as np
import pytest

import gristmill
from gristmill._observe import summary_message
from gristmill.experimental import DatasetOptions, ExecutionTrackingMode
from support.twins import grain


def theirs():
    grain()
    return pytest.importorskip("grain.proto.execution_summary_pb2")


@pytest.mark.parametrize("name", ["ExecutionSummary", "ExecutionSummaries"])
def test_fields_match_grain(name):
    descriptor_pb2 = pytest.importorskip("google.protobuf.descriptor_pb2")
    made = []
    for messages in (summary_message, theirs()):
        made.append(descriptor_pb2.DescriptorProto())
        getattr(messages, name).DESCRIPTOR.CopyToProto(made[-1])
    assert made[0] == made[1]


def measured_iterator():
    timing = ExecutionTrackingMode.STAGE_TIMING
    dataset = gristmill.MapDataset.range(20).map(np.float64).to_iter_dataset().batch(4)
    options = DatasetOptions(execution_tracking_mode=timing)
    return iter(dataset.with_options(options))


def test_measured_iterator_has_a_summary():
    iterator = measured_iterator()
    assert len(list(iterator)) == 5
    summary = summary_message.get_execution_summary(iterator)
    nodes = [summary.nodes[number] for number in sorted(summary.nodes)]
    assert [node.id for node in nodes] == list(range(len(nodes)))
    assert [node.is_output for node in nodes] == [True] + [False] * (len(nodes) - 1)
    assert nodes[0].num_produced_elements == 5
    assert nodes[-1].num_produced_elements == 20
    assert nodes[-1].total_processing_time_ns > 0
    assert list(nodes[0].inputs) == [1]
    assert "RangeMapDataset" in nodes[-1].name
    read = theirs().ExecutionSummary.FromString(summary.SerializeToString())
    assert read.nodes[0].name == nodes[0].name


def test_table_matches_grain():
    stats = pytest.importorskip("grain._src.python.dataset.stats")
    real = theirs().ExecutionSummary()
    for number, (name, prefetches) in enumerate(
        [("batch" * 20, False), ("prefetch", True), ("not run", False)]
    ):
        node = real.nodes[number]
        node.id, node.name, node.is_prefetch = number, name, prefetches
        node.inputs.append(number + 1)
        node.wait_time_ratio = 0.25 * number
        node.total_processing_time_ns = (2_500_000, 7_000, 0)[number]
        node.min_processing_time_ns = 999
        node.max_processing_time_ns = 3_000_000_000
        node.num_produced_elements = 7
        node.bytes_consumed, node.bytes_produced = 5_000, 1_000
    ours = summary_message.ExecutionSummary.FromString(real.SerializeToString())
    table = summary_message.pretty_format_summary(ours)
    assert table == stats.pretty_format_summary(real)


def test_unmeasured_iterators_raise_grain_error():
    texts = []
    for library, get in (
        (gristmill, summary_message.get_execution_summary),
        (
            grain(),
            __import__("grain")._src.python.dataset.dataset.get_execution_summary,
        ),
    ):
        with pytest.raises(ValueError) as raised:
            get(iter(library.MapDataset.range(3).to_iter_dataset()))
        texts.append(str(raised.value))
    assert texts[0] == texts[1]
