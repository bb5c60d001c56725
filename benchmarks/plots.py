"""Draws measurements, as SVG that a browser shows in light or dark.

A viewer without `prefers-color-scheme` shows the light version. The metadata of each
picture contains a digest of its data.
"""

import dataclasses
import hashlib
import io
import json
import pathlib
import re
from collections.abc import Callable
from typing import Any

import peer_pages
from harness import Outcome, format_figure

FOLDER = pathlib.Path(__file__).parent.parent / "docs" / "plots"
# In inches.  Text in a picture of the second width is readable on a phone.
WIDTH, PHONE_WIDTH, HEIGHT = 7.2, 4.8, 3.6
PAPER, INK, GRID = "#fefefe", "#24292f", "#d8dee4"
OURS, OTHER, LIMIT = "#0b6bcb", "#868e96", "#57606a"
COLORS = {
    "Gristmill": OURS,
    "Grain": "#d9480f",
    "torch": "#7048e8",
    "SPDL": "#2b8a3e",
}
DARK_COLORS = {
    PAPER: "#161b22",
    INK: "#e6edf3",
    GRID: "#30363d",
    OURS: "#58a6ff",
    OTHER: "#adb5bd",
    LIMIT: "#8b949e",
    COLORS["Grain"]: "#ff922b",
    COLORS["torch"]: "#b197fc",
    COLORS["SPDL"]: "#69db7c",
}
# A heading covers the line at 1, but no bar.
HEADING = {
    "weight": "bold",
    "zorder": 0.5,
    "bbox": {"facecolor": PAPER, "edgecolor": "none", "pad": 0},
}
Lines = dict[str, list[tuple[float, float]]]


@dataclasses.dataclass(frozen=True)
class Plot:
    """A picture: its data, and a function that draws them on matplotlib's axes."""

    data: Callable[[dict[str, Outcome]], Any]
    draw: Callable[[Any, Any], None]


def against_peers(outcomes: dict[str, Outcome]) -> list[list[Any]]:
    """Returns the label and the ratio of each peer, for each row of README's table."""
    return [
        [row.label, row.ratios(outcomes[row.question])]
        for row in peer_pages.COMPARISONS
        if row.question in outcomes
    ]


def _draw_peers(rows: list[list[Any]], axes: Any) -> None:
    place = 0.0
    for label, ratios in reversed(rows):
        for peer, ratio in reversed(ratios.items()):
            color = COLORS.get(peer, OTHER)
            axes.barh(place, ratio - 1, left=1, height=0.8, color=color)
            side = {"ha": "left", "x": max(ratio, 1) * 1.06}
            axes.text(
                y=place, s=f"{format_figure(ratio)}x  {peer}", va="center", **side
            )
            place += 1
        # The label is above the bars, so that the picture fits a phone.
        at_left = axes.get_yaxis_transform()
        axes.text(0, place, label, transform=at_left, va="center", **HEADING)
        place += 1.5
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter("{x:,g}")
    axes.set_yticks([])
    axes.axvline(1, color=OURS, linewidth=2, zorder=0)
    measured = [1, *(ratio for _, ratios in rows for ratio in ratios.values())]
    # Leave space for its label to the right of the longest bar.
    axes.set_xlim(min(measured) / 1.2, max(measured) * 10)
    axes.set_ylim(-0.8, place - 0.6)
    axes.grid(visible=False, axis="y")
    axes.figure.set_size_inches(PHONE_WIDTH, 0.18 * place + 0.6)
    axes.set_xlabel("time relative to Gristmill (logarithmic)")


def over_time(outcomes: dict[str, Outcome]) -> Lines:
    """Returns the number of batches over the seconds, for each loader."""
    series = outcomes["over_time"].series
    # Grain's faster setting.
    names = {"grain (0, 0)": "Grain", "torch": "torch", "spdl": "SPDL"}
    return {
        label: series[name]
        for name, label in {"gristmill": "Gristmill", **names}.items()
        if name in series
    }


def _draw_over_time(lines: Lines, axes: Any) -> None:
    for name, points in lines.items():
        axes.plot(*zip(*points, strict=True), color=COLORS[name], label=name)
    axes.set_xlabel("seconds since iter() was called")
    axes.set_ylabel("batches of 128 images")
    axes.set_xlim(0)
    axes.set_ylim(0)


def first_batch(outcomes: dict[str, Outcome]) -> Lines:
    """Returns the seconds to the first batch over the workers, for each loader."""
    labels = {"gristmill": "Gristmill", "grain (0, 0)": "Grain", "torch": "torch"}
    lines: Lines = {label: [] for label in labels.values()}
    for name, seconds in outcomes["first_batch"].medians.items():
        loader, _, workers = name.rpartition(" ")
        if loader in labels:
            lines[labels[loader]].append((int(workers.removesuffix("w")), seconds))
    return lines


def _draw_first_batch(lines: Lines, axes: Any) -> None:
    for name, points in lines.items():
        axes.plot(*zip(*points, strict=True), "o-", color=COLORS[name], label=name)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter("{x:g}")
    axes.set_xticks([1, 2, 4, 8, 16], ["1", "2", "4", "8", "16"])
    axes.set_xlabel("workers")
    axes.set_ylabel("seconds to the first batch")


BYTES = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20}


def record_sizes(outcomes: dict[str, Outcome]) -> Lines:
    """Returns GiB/s over the bytes of a record, for each contestant."""
    lines: Lines = {}
    for name, ms in outcomes["record_sizes"].medians.items():
        contestant, size = name.rsplit(", ", 1)
        number, unit = size.split(" ")
        points = lines.setdefault(contestant, [])
        points.append((int(number) * BYTES[unit], float(f"{1e3 / ms:.4g}")))
    return lines


def _draw_record_sizes(lines: Lines, axes: Any) -> None:
    styles = {
        "gristmill": ("Gristmill, a file", OURS, "o-"),
        "gristmill array": ("Gristmill, an array", OURS, "o:"),
        "grain (0, 0)": ("Grain, a file", COLORS["Grain"], "o-"),
        "torch getitems": ("torch, a file", COLORS["torch"], "o-"),
        "pread": ("limit: pread", LIMIT, "-"),
        "take": ("limit: take", LIMIT, ":"),
        "memcpy": ("limit: memcpy", LIMIT, "--"),
    }
    for name, points in lines.items():
        label, color, style = styles[name]
        axes.plot(*zip(*points, strict=True), style, color=color, label=label)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter("{x:g}")
    sizes = next(iter(lines.values()))
    texts = [_bytes(size) for size, _ in sizes]
    axes.set_xticks([size for size, _ in sizes], texts)
    axes.set_xlabel("bytes of a record")
    axes.set_ylabel("GiB/s")


def _bytes(size: float) -> str:
    unit = max((u for u in BYTES if BYTES[u] <= size), key=BYTES.__getitem__)
    return f"{size / BYTES[unit]:g} {unit}"


PLOTS = {
    "peers": Plot(against_peers, _draw_peers),
    "over-time": Plot(over_time, _draw_over_time),
    "first-batch": Plot(first_batch, _draw_first_batch),
    "record-sizes": Plot(record_sizes, _draw_record_sizes),
}


def digest(name: str, outcomes: dict[str, Outcome]) -> str:
    """Returns a digest of a plot's data."""
    text = json.dumps(PLOTS[name].data(outcomes))
    return hashlib.sha256(text.encode()).hexdigest()


def svg(name: str, outcomes: dict[str, Outcome]) -> str:
    """Returns a plot as the text of an SVG file."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    plot = PLOTS[name]
    style = {
        "svg.fonttype": "none",
        "svg.hashsalt": name,
        "font.family": "sans-serif",
        "font.sans-serif": ["system-ui", "DejaVu Sans"],
        "font.size": 9,
        "text.color": INK,
        "axes.labelcolor": INK,
        "axes.edgecolor": GRID,
        "axes.facecolor": PAPER,
        "axes.grid": True,
        "axes.axisbelow": True,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "figure.facecolor": PAPER,
        "grid.color": GRID,
        "xtick.color": INK,
        "ytick.color": INK,
        "xtick.minor.bottom": False,
        "ytick.minor.left": False,
        "legend.frameon": False,
    }
    with pyplot.rc_context(style):
        figure, axes = pyplot.subplots(figsize=(WIDTH, HEIGHT), layout="tight")
        plot.draw(plot.data(outcomes), axes)
        if axes.get_legend_handles_labels()[0]:
            axes.legend()
        file = io.StringIO()
        metadata = {"Date": None, "Description": digest(name, outcomes)}
        figure.savefig(file, format="svg", metadata=metadata)
        pyplot.close(figure)
    return _with_dark_colors(file.getvalue())


def _with_dark_colors(text: str) -> str:
    """Adds rules that replace the light colors if a browser prefers dark ones."""
    rules = [
        f'[style*="{attribute}: {light}"] {{ {attribute}: {dark} !important }}'
        for light, dark in DARK_COLORS.items()
        for attribute in ("fill", "stroke")
    ]
    lines = ["@media (prefers-color-scheme: dark) {", *rules, "}</style>"]
    return re.sub("</style>", lambda _: "\n".join(lines), text, count=1)


def write(outcomes: dict[str, Outcome]) -> None:
    """Draws all plots."""
    FOLDER.mkdir(exist_ok=True)
    for name in PLOTS:
        (FOLDER / f"{name}.svg").write_text(svg(name, outcomes))
