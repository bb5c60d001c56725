"""Shows the progress of a task on a terminal or in a notebook.

The thread that does the work also draws the progress; there is no other thread.
"""

from __future__ import annotations

import sys
import time
from typing import Any, TextIO

REDRAW_S = 0.1


class Progress:
    """Receives the progress of a task; this base class shows nothing."""

    def begin(self, what: str, total: int, done: int = 0) -> None:
        """Begin a task.

        Args:
            what: The name of the counted things.
            total: The number of things in the task.
            done: How many of them were done before.
        """

    def advance(self, count: int) -> None:
        """Count `count` more things as done."""

    def end(self) -> None:
        """Remove the display."""


def on_terminal() -> bool:
    """Return whether standard error is a terminal."""
    return sys.stderr is not None and sys.stderr.isatty()


def _columns() -> int:
    import shutil  # Slow to import.

    return shutil.get_terminal_size().columns


def is_watched() -> bool:
    """Return whether standard error is a terminal or is shown by a notebook."""
    if on_terminal():
        return True
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return getattr(shell, "kernel", None) is not None


def new_display() -> Progress:
    """Return the progress display for this process.

    On a terminal it uses rich if that is installed.
    """
    if on_terminal():
        try:
            return RichBar()
        except ImportError:
            return Bar()
    return Bar() if is_watched() else Progress()


class Line:
    """A line of a terminal that is overwritten in place.

    Args:
        out: The terminal. None is standard error.
    """

    def __init__(self, out: TextIO | None = None) -> None:
        self._out = out or sys.stderr
        self._length = 0

    def show(self, text: str) -> None:
        """Show a text, cut to the width of the terminal."""
        text = text[: _columns() - 1]
        # Notebooks do not support the escape sequence that erases a line.
        self._out.write(f"\r{text:<{self._length}}")
        self._out.flush()
        self._length = len(text)

    def clear(self) -> None:
        """Remove the line."""
        if self._length:
            self.show("")
            self._out.write("\r")
            self._out.flush()


class Bar(Progress):
    """A line with a bar.

    Args:
        out: The terminal. None is standard error.
    """

    def __init__(self, out: TextIO | None = None) -> None:
        self._line = Line(out)
        self._what = ""
        self._total = self._done = self._before = 0
        self._start = self._drawn = 0.0

    def begin(self, what: str, total: int, done: int = 0) -> None:
        self._what, self._total = what, total
        self._done = self._before = done
        self._start, self._drawn = time.monotonic(), 0.0
        self._draw()

    def advance(self, count: int) -> None:
        self._done += count
        if time.monotonic() - self._drawn >= REDRAW_S or self._done >= self._total:
            self._draw()

    def end(self) -> None:
        self._line.clear()

    def _draw(self) -> None:
        self._drawn = time.monotonic()
        share = self._done / self._total if self._total else 1.0
        elapsed = self._drawn - self._start
        speed = (self._done - self._before) / elapsed if elapsed > 0.5 else 0.0
        text = f"{share:4.0%} {self._done:,}/{self._total:,} {self._what}"
        if speed > 0:
            left = (self._total - self._done) / speed
            text += f", {_rate(speed)}/s, {_clock(left)} left"
        columns = _columns() - 1
        width = max(0, min(30, columns - len(text) - 3))
        bar = "#" * round(min(1.0, share) * width)
        self._line.show(f"[{bar:<{width}}] {text}" if width > 5 else text)


class Count(Progress):
    """A line with the number of things done, for an unknown total."""

    def __init__(self) -> None:
        self._line = Line()
        self._what = ""
        self._done = 0

    def begin(self, what: str, total: int, done: int = 0) -> None:
        self._what, self._done = what, done
        self.advance(0)

    def advance(self, count: int) -> None:
        self._done += count
        self._line.show(f"{self._done:,} {self._what}")

    def end(self) -> None:
        self._line.clear()


class RichBar(Progress):
    """A progress bar drawn by rich.

    Raises:
        ImportError: rich is not installed.
    """

    def __init__(self) -> None:
        from rich import console, progress

        self._bars = progress.Progress(
            progress.BarColumn(),
            progress.TaskProgressColumn(),
            progress.TextColumn(
                "{task.completed:,.0f}/{task.total:,.0f} {task.description}",
                markup=False,
            ),
            progress.TimeRemainingColumn(),
            console=console.Console(stderr=True),
            transient=True,
            auto_refresh=False,  # Otherwise rich draws in a thread of its own.
        )
        self._task: Any = None
        self._drawn = 0.0

    def begin(self, what: str, total: int, done: int = 0) -> None:
        if self._task is not None:
            self._bars.remove_task(self._task)
        self._task = self._bars.add_task(what, total=total, completed=done)
        self._bars.start()
        self._bars.refresh()

    def advance(self, count: int) -> None:
        self._bars.advance(self._task, count)
        now = time.monotonic()
        if now - self._drawn >= REDRAW_S:
            self._bars.refresh()
            self._drawn = now

    def end(self) -> None:
        if self._task is not None:
            self._bars.stop()


def _rate(number: float) -> str:
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
