"""Formats times and sizes for people."""


def time_text(ns: float) -> str:
    """Return a duration in ns as text, such as ``1.25ms``."""
    if ns < 1_000:
        return f"{ns:.0f}ns"
    for unit, size in (("us", 1e3), ("ms", 1e6)):
        if ns < size * 1_000:
            return f"{ns / size:.2f}{unit}"
    return f"{ns / 1e9:.2f}s"


def bytes_text(count: float) -> str:
    """Return a number of bytes as text, such as ``1.50 KiB``."""
    if count < 1024:
        return f"{count:.0f} bytes"
    for unit in ("KiB", "MiB", "GiB"):
        count /= 1024
        if count < 1024:
            return f"{count:.2f} {unit}"
    return f"{count / 1024:.2f} TiB"
