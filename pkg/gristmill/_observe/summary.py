"""What was measured of each node of a chain, as numbers and as Grain's table."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from gristmill._observe.meter import Measurement, Meter

COLUMN_WIDTH = 30
ROW_LINES = 5
NOTE = (
    "NOTE: look at `percent wait time` first: it says what the consumer waits for."
    " `total processing time` of nodes that run in several threads or processes is the"
    " sum over all of them, so it may be longer than the run and does not compare with"
    " that of the others."
)
SOURCE_LIMITS = (
    "WARNING: most of the waiting is for the source to read. See whether the data is"
    " near, and what the disk or the network could give."
)


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class NodeSummary:
    """What was measured of one node.

    Attributes:
        id: Its number: 0 for the node that gives the elements out, its parents follow.
        name: The node as text.
        kind: What it does; see `Kind`.
        inputs: The ids of its parents.
        wait_ratio: Its part of the time that the consumer waited, from 0 to 1; None
            for a node that waits for others, whose part is given to those.
        total_processing_time_ns: Its own time, without its parents', in all threads
            and processes.
        min_processing_time_ns: Of one element.
        max_processing_time_ns: Of one element.
        num_produced_elements: How many it made.
        memory_usage: Bytes that it holds ready; 0 for a node that holds none.
        computes: The part of its time in which it computed rather than waited.
        bytes_per_element: About the size of an element.
    """

    id: int
    name: str
    kind: str
    inputs: tuple[int, ...]
    wait_ratio: float | None
    total_processing_time_ns: int
    min_processing_time_ns: int
    max_processing_time_ns: int
    num_produced_elements: int
    memory_usage: int
    computes: float = 0.0
    bytes_per_element: float = 0.0

    @property
    def avg_processing_time_ns(self) -> int:
        """Its own time for an element, on the average; 0 where it made none."""
        if not self.num_produced_elements:
            return 0
        return self.total_processing_time_ns // self.num_produced_elements


def summarize(measurement: Measurement) -> tuple[NodeSummary, ...]:
    """What was measured of each node, in the order of their ids."""
    meters = measurement.totals()
    shares = _wait_shares(meters)
    return tuple(
        NodeSummary(
            id=meter.number,
            name=meter.name,
            kind=meter.kind,
            inputs=tuple(meter.inputs),
            wait_ratio=shares[meter.number],
            total_processing_time_ns=int(
                meter.numbers.direct + meter.numbers.background
            ),
            min_processing_time_ns=meter.numbers.least_ns,
            max_processing_time_ns=meter.numbers.most_ns,
            num_produced_elements=meter.numbers.elements,
            computes=meter.numbers.computes,
            bytes_per_element=meter.numbers.bytes_each,
            memory_usage=_held(meters, meter),
        )
        for meter in meters
    )


def _waits(meters: list[Meter], meter: Meter) -> bool:
    """Whether a node's own time is waiting for threads or processes behind it."""
    return any(meters[number].numbers.begun for number in meter.inputs)


def _wait_shares(meters: list[Meter]) -> dict[int, float | None]:
    """Each node's part of the time that the consumer waited.

    The part of a node that waits for others is theirs, in proportion to their time.
    """
    whole = sum(meter.numbers.direct for meter in meters) or 1
    shares: dict[int, float | None] = {}
    amounts = {meter.number: meter.numbers.direct / whole for meter in meters}
    for meter in meters:
        if not _waits(meters, meter):
            shares[meter.number] = amounts[meter.number]
            continue
        behind = _working_for(meters, meter)
        weight = sum(node.numbers.background for node in behind)
        if not weight:
            shares[meter.number] = amounts[meter.number]
            continue
        for node in behind:
            part = node.numbers.background / weight
            amounts[node.number] += amounts[meter.number] * part
        shares[meter.number] = None
    return shares


def _working_for(meters: list[Meter], meter: Meter) -> list[Meter]:
    """The nodes that work in the background for one, up to others that wait."""
    found: list[Meter] = []
    for number in meter.inputs:
        node = meters[number]
        found.append(node)
        if not _waits(meters, node):
            found += _working_for(meters, node)
    return found


def _held(meters: list[Meter], meter: Meter) -> int:
    """Bytes that a node which waits has ready, or has threads or processes make."""
    if not _waits(meters, meter):
        return 0
    ready = sum(meters[number].numbers.elements for number in meter.inputs)
    return max(0, int((ready - meter.numbers.elements) * meter.numbers.bytes_each))


def table(nodes: Sequence[NodeSummary]) -> str:
    """The table in Grain's form: the node that was waited for longest comes first."""
    return rows_of(sorted(nodes, key=lambda node: -(node.wait_ratio or 0)))


def rows_of(nodes: Sequence[NodeSummary]) -> str:
    """The table in Grain's form, of nodes in their order."""
    rows = [list(_COLUMNS)]
    rows += [[column(node) for column in _COLUMNS.values()] for node in nodes]
    columns = zip(*rows, strict=True)
    widths = [min(max(map(len, column)), COLUMN_WIDTH) for column in columns]
    dashes = sum(width + 2 for width in widths) + len(widths) - 1
    border = f"|{'-' * dashes}|\n"
    return border + border.join([*(_row(row, widths) for row in rows), ""])


def execution_summary(nodes: Sequence[NodeSummary]) -> str:
    """What debug mode logs."""
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


def _time(node: NodeSummary, ns: int) -> str:
    return time_text(ns) if node.total_processing_time_ns else "N/A"


_COLUMNS: dict[str, Callable[[NodeSummary], str]] = {
    "id": lambda node: str(node.id),
    "name": lambda node: node.name,
    "inputs": lambda node: str(list(node.inputs)),
    "percent wait time": lambda node: (
        "N/A" if node.wait_ratio is None else f"{node.wait_ratio * 100:.2f}%"
    ),
    "total processing time": lambda node: _time(node, node.total_processing_time_ns),
    "min processing time": lambda node: _time(node, node.min_processing_time_ns),
    "max processing time": lambda node: _time(node, node.max_processing_time_ns),
    "avg processing time": lambda node: _time(node, node.avg_processing_time_ns),
    "num produced elements": lambda node: str(node.num_produced_elements),
    "memory usage": lambda node: bytes_text(node.memory_usage),
}


def time_text(ns: float) -> str:
    """A duration such as ``1.25ms``."""
    if ns < 1_000:
        return f"{ns:.0f}ns"
    for unit, size in (("us", 1e3), ("ms", 1e6)):
        if ns < size * 1_000:
            return f"{ns / size:.2f}{unit}"
    return f"{ns / 1e9:.2f}s"


def bytes_text(count: float) -> str:
    """A number of bytes such as ``1.50 KiB``."""
    if count < 1024:
        return f"{count:.0f} bytes"
    for unit in ("KiB", "MiB", "GiB"):
        count /= 1024
        if count < 1024:
            return f"{count:.2f} {unit}"
    return f"{count / 1024:.2f} TiB"
