"""Returns the measurement of a chain as Grain's protobuf message."""

from __future__ import annotations

import functools
import importlib
from typing import Any

from gristmill._observe.meter import Meter, Numbers
from gristmill._observe.observed import ObservedDatasetIterator
from gristmill._observe.summary import rows_of, summarize

# Fields of a node: name, number and protobuf's name of the type.
_NODE = (
    ("id", 2, "INT32"),
    ("name", 3, "STRING"),
    ("inputs", 4, "INT32"),
    ("wait_time_ratio", 5, "DOUBLE"),
    ("total_processing_time_ns", 6, "INT64"),
    ("min_processing_time_ns", 7, "INT64"),
    ("max_processing_time_ns", 8, "INT64"),
    ("num_produced_elements", 9, "INT64"),
    ("output_spec", 10, "STRING"),
    ("is_output", 11, "BOOL"),
    ("is_prefetch", 12, "BOOL"),
    ("bytes_consumed", 13, "INT64"),
    ("bytes_produced", 14, "INT64"),
)
_PACKAGE = "grain.python.execution_summary"
# Names of fields with several values.
_REPEATED = ("execution_summaries", "inputs", "nodes")


@functools.cache
def _classes() -> dict[str, Any]:
    """Return message classes with the fields of Grain's, in a pool of our own."""
    try:
        protobuf = importlib.import_module("google.protobuf.descriptor_pb2")
        pools = importlib.import_module("google.protobuf.descriptor_pool")
        factory = importlib.import_module("google.protobuf.message_factory")
    except ImportError as error:
        raise ImportError(
            "get_execution_summary needs the protobuf package. Install it with: pip"
            " install protobuf"
        ) from error

    field_class = protobuf.FieldDescriptorProto

    def add(
        message: Any, name: str, number: int, kind: str, message_type: str = ""
    ) -> None:
        message.field.add(
            name=name,
            number=number,
            type=getattr(field_class, f"TYPE_{kind}"),
            type_name=f".{_PACKAGE}.{message_type}" if message_type else None,
            label=field_class.LABEL_REPEATED
            if name in _REPEATED
            else field_class.LABEL_OPTIONAL,
        )

    file = protobuf.FileDescriptorProto(
        name="grain/proto/execution_summary.proto", package=_PACKAGE, syntax="proto3"
    )
    summary = file.message_type.add(name="ExecutionSummary")
    add(summary, "nodes", 1, "MESSAGE", "ExecutionSummary.NodesEntry")
    node = summary.nested_type.add(name="Node")
    for field in _NODE:
        add(node, *field)
    entry = summary.nested_type.add(name="NodesEntry")
    entry.options.map_entry = True
    add(entry, "key", 1, "INT32")
    add(entry, "value", 2, "MESSAGE", "ExecutionSummary.Node")
    several = file.message_type.add(name="ExecutionSummaries")
    add(several, "execution_summaries", 1, "MESSAGE", "ExecutionSummary")
    pool = pools.DescriptorPool()
    pool.Add(file)
    return {
        name: factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}"))
        for name in ("ExecutionSummary", "ExecutionSummaries")
    }


def __getattr__(name: str) -> Any:
    """Return a message class; made when it is first used, since it needs protobuf."""
    if name not in ("ExecutionSummary", "ExecutionSummaries"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _classes()[name]


def get_execution_summary(ds: Any) -> Any:
    """Return an ExecutionSummary: the measurement of each node, by its id.

    Args:
        ds: An iterator whose nodes are measured.

    Raises:
        ValueError: The nodes are not measured.
        ImportError: protobuf is not installed.
    """
    if not isinstance(ds, ObservedDatasetIterator):
        raise ValueError(
            "Set `grain_py_debug_mode` or set `execution_tracking_mode` in grain"
            " options to `STAGE_TIMING` to enable execution statistics collection."
        )
    message = _classes()["ExecutionSummary"]()
    for node in summarize(ds.measurement):
        numbers = node.numbers
        node_message = message.nodes[node.number]
        node_message.id = node.number
        node_message.name = node.name
        node_message.inputs.extend(node.inputs)
        node_message.wait_time_ratio = node.wait_ratio or 0.0
        node_message.total_processing_time_ns = numbers.total_ns
        node_message.min_processing_time_ns = numbers.min_ns
        node_message.max_processing_time_ns = numbers.max_ns
        node_message.num_produced_elements = numbers.elements
        node_message.output_spec = "" if node.spec is None else str(node.spec)
        node_message.is_output = node.number == 0
        node_message.is_prefetch = node.wait_ratio is None
        node_message.bytes_produced = int(numbers.bytes_per_element * numbers.elements)
        node_message.bytes_consumed = node_message.bytes_produced + node.held_bytes
    return message


def pretty_format_summary(summary: Any) -> str:
    """Return the nodes of a summary as a table, the one with the highest id first."""
    numbers = sorted(summary.nodes, reverse=True)
    return rows_of([_meter_of(summary.nodes[number]) for number in numbers])


def _meter_of(node: Any) -> Meter:
    """Return the meter that a node of a message describes."""
    is_prefetch = node.is_prefetch
    held_bytes = node.bytes_consumed - node.bytes_produced if is_prefetch else 0
    return Meter(
        node.id,
        node.name,
        "prefetch" if is_prefetch else "transform",
        list(node.inputs),
        numbers=Numbers(
            elements=node.num_produced_elements,
            direct_ns=node.total_processing_time_ns,
            min_ns=node.min_processing_time_ns,
            max_ns=node.max_processing_time_ns,
        ),
        wait_ratio=None if is_prefetch else node.wait_time_ratio,
        held_bytes=max(0, held_bytes),
    )
