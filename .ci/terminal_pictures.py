"""Draws what `report()` and `gristmill top` print, from real runs in a terminal.

    python .ci/terminal_pictures.py

This needs the package, and writes `docs/pictures/report.svg` and
`docs/pictures/top.svg`.  A browser shows them in light or dark.
"""

import fcntl
import os
import pathlib
import pty
import re
import struct
import subprocess
import sys
import tempfile
import termios
import time
from xml.sax.saxutils import escape

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "docs" / "pictures"
PIPELINE = """\
import sys
import time

import numpy as np
import gristmill as grain

images = np.random.default_rng(0).integers(0, 256, (500, 128, 128, 3), np.uint8)


def decode(image):
    return np.sqrt(image.reshape(32, 4, 32, 4, 3).mean((1, 3)) / 255)


ds = grain.MapDataset.source(images).shuffle(seed=1).repeat()
ds = ds.map(decode).to_iter_dataset().batch(64)
"""
REPORT = PIPELINE + "print(ds.report())\n"
TRAIN = (
    PIPELINE
    + """\
ds = ds.mp_prefetch(grain.MultiprocessingOptions(num_workers=2))
for step, batch in enumerate(ds):
    time.sleep(0.005)
    if step == 20:
        print("started", flush=True)
"""
)
SECONDS_BEFORE_TOP = 2
REPORT_COLUMNS, TOP_COLUMNS = 116, 80
FONT_SIZE, CHARACTER_WIDTH, LINE_HEIGHT, MARGIN = 12, 7.2, 18, 16
ESCAPE = re.compile(r"\x1b\[([\d;]*)([A-Za-z])")
# Colors of the parameters of "select graphic rendition": light and dark.
COLORS = {
    "31": ("#c92a2a", "#ff8787"),
    "32": ("#2b8a3e", "#69db7c"),
    "33": ("#915c00", "#ffd43b"),
    "34": ("#1864ab", "#74c0fc"),
    "35": ("#7048e8", "#b197fc"),
    "36": ("#0b7285", "#66d9e8"),
}
INK, PAPER, FRAME = (
    ("#24292f", "#e6edf3"),
    ("#f6f8fa", "#161b22"),
    ("#d0d7de", "#30363d"),
)


def run_in_terminal(command, columns, folder):
    """Return what a command prints to a terminal with this number of columns."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": str(columns)}
    environment.pop("LINES", None)  # Importing readline sets it.
    environment.pop("NO_COLOR", None)
    parts = []
    with subprocess.Popen(
        command, stdout=theirs, stderr=theirs, cwd=folder, env=environment
    ) as running:
        os.close(theirs)
        while part := _read(ours):
            parts.append(part)
    os.close(ours)
    text = b"".join(parts).decode().replace("\r\n", "\n")
    if running.returncode:
        raise SystemExit(f"{command} failed:\n{text}")
    return text


def _read(terminal):
    try:
        return os.read(terminal, 1 << 16)
    except OSError:  # The program has closed its end.
        return b""


def styled_lines(text, columns):
    """Return the lines of a terminal, each a list of (text, styles) parts.

    Args:
        text: What a program printed, with escape sequences of colors.
        columns: The width at which the terminal breaks lines.
    """
    lines, styles = [], ()
    for line in text.rstrip("\n").split("\n"):
        parts, column, end = [], 0, 0
        for found in [*ESCAPE.finditer(line), None]:
            rest = line[end : found.start() if found else len(line)]
            while column + len(rest) > columns:
                parts.append((rest[: columns - column], styles))
                lines.append(parts)
                rest, parts, column = rest[columns - column :], [], 0
            if rest:
                parts.append((rest, styles))
                column += len(rest)
            if found:
                end = found.end()
                if found[2] == "m":
                    styles = _styles_after(styles, found[1])
        lines.append(parts)
    return lines


def _styles_after(styles, parameters):
    """Return the styles after a "select graphic rendition"."""
    for parameter in (parameters or "0").split(";"):
        styles = () if parameter in ("", "0") else (*styles, parameter)
    return styles


def picture_of(title, text, columns):
    """Return an SVG of a terminal that shows text."""
    lines = styled_lines(text, columns)
    width = round(2 * MARGIN + columns * CHARACTER_WIDTH)
    height = 2 * MARGIN + len(lines) * LINE_HEIGHT
    drawn = []
    for row, parts in enumerate(lines):
        column, y = 0, MARGIN + 13 + row * LINE_HEIGHT
        for part, styles in parts:
            shown = part.strip(" ")
            if shown:
                start = column + len(part) - len(part.lstrip(" "))
                names = " ".join(f"s{style}" for style in styles)
                drawn.append(_text(shown, start, y, names))
            column += len(part)
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}"'
            f' height="{height}" viewBox="0 0 {width} {height}" role="img">',
            f"<title>{escape(title)}</title>",
            f"<style>\n{_rules(0)}",
            f"@media (prefers-color-scheme: dark) {{\n{_rules(1)}}}\n</style>",
            f'<rect class="frame" x="0.5" y="0.5" width="{width - 1}"'
            f' height="{height - 1}" rx="8"/>',
            *drawn,
            "</svg>\n",
        ]
    )


def _text(shown, column, y, names):
    # The length keeps columns aligned, whichever font the browser has.
    return (
        f'<text class="{names}" x="{MARGIN + column * CHARACTER_WIDTH:.1f}" y="{y}"'
        f' textLength="{len(shown) * CHARACTER_WIDTH:.1f}"'
        f' lengthAdjust="spacingAndGlyphs">{escape(shown)}</text>'
    ).replace(' class=""', "")


def _rules(scheme):
    """Return the rules of style for light (0) or dark (1)."""
    rules = [
        f"text {{ font: {FONT_SIZE}px ui-monospace, 'DejaVu Sans Mono', monospace;"
        f" white-space: pre; fill: {INK[scheme]} }}",
        f".frame {{ fill: {PAPER[scheme]}; stroke: {FRAME[scheme]} }}",
        ".s1 { font-weight: bold }",
        ".s2 { opacity: 0.7 }",
        *(f".s{code} {{ fill: {both[scheme]} }}" for code, both in COLORS.items()),
    ]
    return "".join(f"{rule}\n" for rule in rules)


def main():
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as parent:
        folder = pathlib.Path(parent, "my", "train")
        folder.mkdir(parents=True)
        for name, program in (("report.py", REPORT), ("train.py", TRAIN)):
            (folder / name).write_text(program)
        python = sys.executable
        printed = run_in_terminal([python, "report.py"], REPORT_COLUMNS, folder)
        shown = f"\x1b[2m>>>\x1b[0m print(ds.report())\n{printed}"
        picture = picture_of("A report", shown, REPORT_COLUMNS)
        (FOLDER / "report.svg").write_text(picture)

        # The command line that `gristmill top` shows.
        path = f"{pathlib.Path(python).parent}:{os.environ['PATH']}"
        with subprocess.Popen(
            ["python", "train.py"],
            env={**os.environ, "PATH": path},
            stdout=subprocess.PIPE,
            cwd=folder,
        ) as training:
            try:
                training.stdout.readline()
                time.sleep(SECONDS_BEFORE_TOP)
                top = ["-m", "gristmill", "top", str(training.pid), "--once"]
                printed = run_in_terminal([python, *top], TOP_COLUMNS, folder)
            finally:
                training.kill()
        shown = f"\x1b[2m$\x1b[0m gristmill top {training.pid}\n{printed}"
        picture = picture_of("gristmill top", shown, TOP_COLUMNS)
        (FOLDER / "top.svg").write_text(picture)


if __name__ == "__main__":
    main()
