"""Formats the workers of a loader as a table of the columns that fit."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from gristmill._cli.terminal import Style, format_bytes, format_rate, format_table

# The columns of numbers from left to right; the worker's state follows them.
_COLUMNS = ("worker", "pid", "for", "CPU", "memory", "outputs/s", "restarts")
# Columns and parts of the state's text, the most useful first.  Those that do not fit
# are left out.
_BY_USE = (
    "outputs/s",
    "for",
    "CPU",
    "positions",
    "memory",
    "record",
    "pid",
    "stream",
    "restarts",
)
_STYLES: dict[str, Style] = {
    "computing": "green",
    "waiting for work": "dim",
    "waiting for room": "yellow",
    "starting": "yellow",
    "stopped": "red",
    "ended": "red",
}


def format_workers(
    loader: dict[str, Any], columns: int
) -> list[tuple[str, str, Style | None]]:
    """Format the workers of a loader as a table.

    Args:
        loader: The loader's activity.
        columns: The most columns of the table.

    Returns:
        Each line as its numbers, the state of the worker, and the style of the state.
    """
    workers: Sequence[dict[str, Any]] = loader["workers"]
    restarted = any(worker["restarts"] for worker in workers)
    shown = {"worker"}
    lines = _table_lines(loader, shown)
    for name in ("restarts", *_BY_USE) if restarted else _BY_USE:
        wider = _table_lines(loader, shown | {name})
        if max(len(numbers) + len(state) for numbers, state in wider) <= columns:
            shown.add(name)
            lines = wider
    styles = ("bold", *(_STYLES.get(worker["state"]) for worker in workers))
    return [(*line, style) for line, style in zip(lines, styles, strict=True)]


def _table_lines(
    loader: dict[str, Any], shown: Collection[str]
) -> list[tuple[str, str]]:
    """Return the numbers and the state of each worker, below a line of titles."""
    names = [name for name in _COLUMNS if name in shown]
    rows: list[Sequence[str]] = [names]
    states = ["does"]
    for worker in loader["workers"]:
        numbers = _numbers(worker)
        rows.append([numbers[name] for name in names])
        states.append(_describe_state(worker, loader["face"], shown))
    lines = format_table(rows).splitlines()
    return [(f"{line}  ", state) for line, state in zip(lines, states, strict=True)]


def _numbers(worker: dict[str, Any]) -> dict[str, str]:
    unit = worker["unit"]
    return {
        "worker": str(worker["worker"]),
        "pid": str(worker["pid"] or "-"),
        "for": _format_duration(unit["seconds"]) if unit else "-",
        "CPU": share_or_dash(worker["cpu"]),
        "memory": size_or_dash(worker["pss_bytes"]),
        "outputs/s": rate_or_dash(worker["outputs_per_s"]),
        "restarts": str(worker["restarts"]),
    }


def _describe_state(worker: dict[str, Any], face: str, shown: Collection[str]) -> str:
    """Return the state of a worker, and the parts of its unit that are shown."""
    state, unit = str(worker["state"]), worker["unit"]
    if unit is None or state == "ended" or "positions" not in shown:
        return state
    if face == "torch":
        text = "batch"
    elif unit["count"] is None:
        text = "next"
    else:
        text = f"{unit['first']:,} to {unit['first'] + unit['count'] - 1:,}"
    if face != "torch" and "stream" in shown:
        text += f" of stream {unit['stream']}"
    if unit["record"] is not None and "record" in shown:
        text += f", at record {unit['record']:,}"
    return f"{state}{' ' if state == 'computing' else ': '}{text}"


def rate_or_dash(per_s: float | None) -> str:
    """Format a number per second, "-" if it is unknown."""
    return "-" if per_s is None else format_rate(per_s)


def share_or_dash(share: float | None) -> str:
    """Format a share as a percentage, "-" if it is unknown."""
    return "-" if share is None else f"{share:.0%}"


def size_or_dash(size: int | None) -> str:
    """Format a number of bytes, "-" if it is unknown."""
    return "-" if size is None else format_bytes(size)


def _format_duration(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds >= 1 else f"{seconds * 1000:.0f} ms"
