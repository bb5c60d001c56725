"""Draws the processes of ranks with a loader each, and with a shared one.

    python benchmarks/rank_picture.py

The picture, ``docs/plots/many-ranks.svg``, does not show measurements.
"""

from xml.sax.saxutils import escape

import plots

RANKS, WORKERS = 4, 2
WIDTH, HEIGHT = 720, 250
RANK_COLOR, WORKER_COLOR = plots.OURS, plots.OTHER


def _box(x: float, y: float, width: float, text: str, color: str) -> str:
    return (
        f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="26" rx="5"'
        f' style="fill: none; stroke: {color}; stroke-width: 1.5"/>'
        + _text(x + width / 2, y + 17, text)
    )


def _text(x: float, y: float, text: str) -> str:
    return (
        f'<text x="{x:g}" y="{y:g}" text-anchor="middle"'
        f' style="fill: {plots.INK}">{escape(text)}</text>'
    )


def _line(x: float, y: float, to_x: float, to_y: float) -> str:
    return (
        f'<path d="M {x:g} {y:g} L {to_x:g} {to_y:g}"'
        f' style="fill: none; stroke: {plots.LIMIT}"/>'
    )


def _before(left: float) -> list[str]:
    parts = [_text(left + 165, 24, "a loader for each rank")]
    for rank in range(RANKS):
        x = left + 84 * rank
        parts.append(_box(x, 44, 76, f"rank {rank}", RANK_COLOR))
        for worker in range(WORKERS):
            y = 128 + 36 * worker
            parts.append(_box(x + 8, y, 68, "worker", WORKER_COLOR))
        bottom = 128 + 36 * (WORKERS - 1) + 13
        parts.append(_line(x + 3, 70, x + 3, bottom))
        parts += [
            _line(x + 3, 141 + 36 * worker, x + 8, 141 + 36 * worker)
            for worker in range(WORKERS)
        ]
    parts.append(_text(left + 165, 232, f"{RANKS * WORKERS} workers, {RANKS} indices"))
    return parts


def _after(left: float) -> list[str]:
    parts = [_text(left + 165, 24, "one shared loader")]
    middle = left + 165
    for rank in range(RANKS):
        x = left + 84 * rank
        parts.append(_box(x, 44, 76, f"rank {rank}", RANK_COLOR))
        parts.append(_line(x + 38, 70, middle, 110))
    parts.append(_box(middle - 60, 110, 120, "server", WORKER_COLOR))
    for worker in range(WORKERS):
        x = middle + 84 * (worker - WORKERS / 2) + 4
        parts.append(_line(middle, 136, x + 38, 170))
        parts.append(_box(x, 170, 76, "worker", WORKER_COLOR))
    parts.append(_text(middle, 232, f"{WORKERS} workers, 1 index, 1 arena"))
    return parts


def picture() -> str:
    """Returns the picture as the text of an SVG file."""
    rules = [
        f'[style*="{attribute}: {light}"] {{ {attribute}: {dark} !important }}'
        for light, dark in plots.DARK_COLORS.items()
        for attribute in ("fill", "stroke")
    ]
    style = [
        "text { font: 13px system-ui, sans-serif }",
        "@media (prefers-color-scheme: dark) {",
        *rules,
        "}",
    ]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}"'
            f' width="{WIDTH}" height="{HEIGHT}">',
            "<title>Processes of four ranks</title>",
            f"<style>{chr(10).join(style)}</style>",
            f'<rect width="{WIDTH}" height="{HEIGHT}" style="fill: {plots.PAPER}"/>',
            *_before(14),
            *_after(376),
            "</svg>\n",
        ]
    )


if __name__ == "__main__":
    (plots.FOLDER / "many-ranks.svg").write_text(picture())
