"""Sums up the measurement of each node of a chain, as numbers and as a table."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gristmill._base.quantities import bytes_text, time_text
from gristmill._observe.meter import Measurement, Meter

COLUMN_WIDTH = 30
ROW_LINES = 5
NOTE = (
    "NOTE: look at `percent wait time` first: it shows which nodes the consumer waited"
    " for. If a node runs in several threads or processes, its `total processing time`"
    " is the sum over all of them. It may exceed the duration of the run, so do not"
    " compare it with that of other nodes."
)
SOURCE_LIMITS = (
    "WARNING: the consumer waits mostly for the source. Check whether the data is on a"
    " local disk, and how fast the disk or the network is."
)


def summarize(measurement: Measurement) -> list[Meter]:
    """Return the totals of each node, in the order of their numbers."""
    meters = measurement.totals()
    _share_waiting(meters)
    for meter in meters:
        if _waits(meters, meter):
            ready = sum(meters[number].numbers.elements for number in meter.inputs)
            held = (ready - meter.numbers.elements) * meter.numbers.bytes_each
            meter.held_bytes = max(0, int(held))
    return meters


def _waits(meters: list[Meter], meter: Meter) -> bool:
    """Return whether a node waits for its parents' threads or processes."""
    return any(meters[number].numbers.begun for number in meter.inputs)


def _share_waiting(meters: list[Meter]) -> None:
    """Find each node's part of the time that the consumer waited.

    If a node waits for others, they get its part, in proportion to their times.
    """
    whole = sum(meter.numbers.direct for meter in meters) or 1
    amounts = [meter.numbers.direct / whole for meter in meters]
    for meter in meters:
        workers = _working_for(meters, meter) if _waits(meters, meter) else []
        weight = sum(node.numbers.background for node in workers)
        for node in workers if weight else ():
            part = node.numbers.background / weight
            amounts[node.number] += amounts[meter.number] * part
        meter.wait_ratio = None if weight else amounts[meter.number]


def _working_for(meters: list[Meter], meter: Meter) -> list[Meter]:
    """Return the nodes that work in the background for one, up to others that wait."""
    found = [meters[number] for number in meter.inputs]
    for node in found[:]:
        if not _waits(meters, node):
            found += _working_for(meters, node)
    return found


def table(nodes: Sequence[Meter]) -> str:
    """Return the table in Grain's format, the node with the longest wait first."""
    return rows_of(sorted(nodes, key=lambda node: -(node.wait_ratio or 0)))


def rows_of(nodes: Sequence[Meter]) -> str:
    """Return the table in Grain's format, with nodes in their order."""
    rows = [list(_COLUMNS)]
    rows += [[column(node) for column in _COLUMNS.values()] for node in nodes]
    columns = zip(*rows, strict=True)
    widths = [min(max(map(len, column)), COLUMN_WIDTH) for column in columns]
    dashes = sum(width + 2 for width in widths) + len(widths) - 1
    border = f"|{'-' * dashes}|\n"
    return border + border.join([*(_row(row, widths) for row in rows), ""])


def execution_summary(nodes: Sequence[Meter]) -> str:
    """Return the text that debug mode logs."""
    text = f"Grain Dataset Execution Summary:\n\n{NOTE}\n\n{table(nodes)}"
    top = max(nodes, key=lambda node: node.wait_ratio or 0)
    if top.kind == "read" and top.wait_ratio:
        text += f"\n{SOURCE_LIMITS}"
    return text


def _row(cells: list[str], widths: list[int]) -> str:
    lines = min(-(-max(map(len, cells)) // COLUMN_WIDTH), ROW_LINES)
    text = ""
    for line in range(max(lines, 1)):
        first = line * COLUMN_WIDTH
        parts = [cell[first : first + COLUMN_WIDTH] for cell in cells]
        padded = (part.ljust(n) for part, n in zip(parts, widths, strict=True))
        text += "| " + " | ".join(padded) + " |\n"
    return text


def _time(node: Meter, ns: int) -> str:
    return time_text(ns) if node.numbers.total_ns else "N/A"


_COLUMNS: dict[str, Callable[[Meter], str]] = {
    "id": lambda node: str(node.number),
    "name": lambda node: node.name,
    "inputs": lambda node: str(node.inputs),
    "percent wait time": lambda node: (
        "N/A" if node.wait_ratio is None else f"{node.wait_ratio * 100:.2f}%"
    ),
    "total processing time": lambda node: _time(node, node.numbers.total_ns),
    "min processing time": lambda node: _time(node, node.numbers.least_ns),
    "max processing time": lambda node: _time(node, node.numbers.most_ns),
    "avg processing time": lambda node: _time(
        node, node.numbers.total_ns // max(node.numbers.elements, 1)
    ),
    "num produced elements": lambda node: str(node.numbers.elements),
    "memory usage": lambda node: bytes_text(node.held_bytes),
}
