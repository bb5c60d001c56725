"""Sums up the measurement of each node of a chain, as numbers and as a table."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gristmill._base.quantities import bytes_text, time_text
from gristmill._observe.meter import Measurement, Meter

# The largest width of a column, in characters, and the most lines of a row.  Longer
# cells are wrapped, and cut off after the last line.
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
    _set_wait_ratios(meters)
    for meter in meters:
        if _waits_for_background(meters, meter):
            received = sum(meters[number].numbers.elements for number in meter.inputs)
            held_elements = received - meter.numbers.elements
            held_bytes = held_elements * meter.numbers.bytes_per_element
            meter.held_bytes = max(0, int(held_bytes))
    return meters


def _waits_for_background(meters: list[Meter], meter: Meter) -> bool:
    """Return whether a node waits for its parents' threads or processes."""
    return any(meters[number].numbers.background_starts for number in meter.inputs)


def _set_wait_ratios(meters: list[Meter]) -> None:
    """Set each node's part of the time that the consumer waited.

    If a node waits for others, they get its part, in proportion to their times.
    """
    total_ns = sum(meter.numbers.clamped_direct_ns for meter in meters) or 1
    shares = [meter.numbers.clamped_direct_ns / total_ns for meter in meters]
    for meter in meters:
        nodes = (
            _working_for(meters, meter) if _waits_for_background(meters, meter) else []
        )
        background_ns = sum(node.numbers.clamped_background_ns for node in nodes)
        for node in nodes if background_ns else ():
            part = node.numbers.clamped_background_ns / background_ns
            shares[node.number] += shares[meter.number] * part
        meter.wait_ratio = None if background_ns else shares[meter.number]


def _working_for(meters: list[Meter], meter: Meter) -> list[Meter]:
    """Return the nodes that work in the background for one, up to others that wait."""
    nodes = [meters[number] for number in meter.inputs]
    for node in nodes[:]:
        if not _waits_for_background(meters, node):
            nodes += _working_for(meters, node)
    return nodes


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
    """Return the lines of a row, in which long cells are wrapped."""
    lines = min(-(-max(map(len, cells)) // COLUMN_WIDTH), ROW_LINES)
    text = ""
    for line in range(max(lines, 1)):
        first = line * COLUMN_WIDTH
        parts = [cell[first : first + COLUMN_WIDTH] for cell in cells]
        padded = (part.ljust(n) for part, n in zip(parts, widths, strict=True))
        text += "| " + " | ".join(padded) + " |\n"
    return text


def _time(node: Meter, ns: int) -> str:
    """Return a time of a node as text, or "N/A" if no time of it was measured."""
    return time_text(ns) if node.numbers.total_ns else "N/A"


_COLUMNS: dict[str, Callable[[Meter], str]] = {
    "id": lambda node: str(node.number),
    "name": lambda node: node.name,
    "inputs": lambda node: str(node.inputs),
    "percent wait time": lambda node: (
        "N/A" if node.wait_ratio is None else f"{node.wait_ratio * 100:.2f}%"
    ),
    "total processing time": lambda node: _time(node, node.numbers.total_ns),
    "min processing time": lambda node: _time(node, node.numbers.min_ns),
    "max processing time": lambda node: _time(node, node.numbers.max_ns),
    "avg processing time": lambda node: _time(
        node, node.numbers.total_ns // max(node.numbers.elements, 1)
    ),
    "num produced elements": lambda node: str(node.numbers.elements),
    "memory usage": lambda node: bytes_text(node.held_bytes),
}
