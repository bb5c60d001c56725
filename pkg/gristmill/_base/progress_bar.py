"""Shows the progress of a task on a terminal or in a notebook.

The thread that does the work also draws the progress.  No thread is started.
"""

from __future__ import annotations

import sys
import time
from typing import Any, TextIO

REDRAW_S = 0.1


class Progress:
    """Receives the progress of a task; this base class shows nothing."""

    def begin(self, noun: str, total: int, done: int = 0, tokens: int = 0) -> None:
        """Begin a task.

        Args:
            noun: The name of the counted things, such as "records".
            total: The number of things in the task.
            done: How many of them were done before.
            tokens: The number of tokens written before.
        """

    def advance(self, count: int, tokens: int = 0) -> None:
        """Count `count` more things as done, and `tokens` more tokens as written."""

    def end(self) -> None:
        """Remove the display."""


def on_terminal() -> bool:
    """Return whether standard error is a terminal."""
    return sys.stderr is not None and sys.stderr.isatty()


def _terminal_width() -> int:
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
        text = text[: _terminal_width() - 1]
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
        self._noun = ""
        self._total = self._done = self._done_before = 0
        self._tokens = self._tokens_before = 0
        self._started_at = self._drawn_at = 0.0

    def begin(self, noun: str, total: int, done: int = 0, tokens: int = 0) -> None:
        self._noun, self._total = noun, total
        self._done = self._done_before = done
        self._tokens = self._tokens_before = tokens
        self._started_at, self._drawn_at = time.monotonic(), 0.0
        self._draw()

    def advance(self, count: int, tokens: int = 0) -> None:
        self._done += count
        self._tokens += tokens
        if time.monotonic() - self._drawn_at >= REDRAW_S or self._done >= self._total:
            self._draw()

    def end(self) -> None:
        self._line.clear()

    def _draw(self) -> None:
        self._drawn_at = time.monotonic()
        share = self._done / self._total if self._total else 1.0
        elapsed = self._drawn_at - self._started_at
        speed = (self._done - self._done_before) / elapsed if elapsed > 0.5 else 0.0
        text = f"{share:4.0%} {self._done:,}/{self._total:,} {self._noun}"
        if self._tokens:
            text += f", {self._tokens:,} tokens"
        if speed > 0:
            left_s = (self._total - self._done) / speed
            if self._tokens:
                speed = (self._tokens - self._tokens_before) / elapsed
            text += f", {_rate_text(speed)}/s, {_duration_text(left_s)} left"
        line_width = _terminal_width() - 1
        bar_width = max(0, min(30, line_width - len(text) - 3))
        bar = "#" * round(min(1.0, share) * bar_width)
        self._line.show(f"[{bar:<{bar_width}}] {text}" if bar_width > 5 else text)


class Count(Progress):
    """A line with the number of things done, for an unknown total."""

    def __init__(self) -> None:
        self._line = Line()
        self._noun = ""
        self._done = 0

    def begin(self, noun: str, total: int, done: int = 0, tokens: int = 0) -> None:
        self._noun, self._done = noun, done
        self.advance(0)

    def advance(self, count: int, tokens: int = 0) -> None:
        self._done += count
        self._line.show(f"{self._done:,} {self._noun}")

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
            progress.TextColumn("{task.fields[tokens]}"),
            progress.TimeRemainingColumn(),
            console=console.Console(stderr=True),
            transient=True,
            auto_refresh=False,  # Otherwise rich draws in a thread of its own.
        )
        self._task: Any = None
        self._tokens = self._tokens_before = 0
        self._started_at = self._drawn_at = 0.0

    def begin(self, noun: str, total: int, done: int = 0, tokens: int = 0) -> None:
        self._tokens = self._tokens_before = tokens
        self._started_at = time.monotonic()
        if self._task is not None:
            self._bars.remove_task(self._task)
        self._task = self._bars.add_task(noun, total=total, completed=done, tokens="")
        self._bars.start()
        self._bars.refresh()

    def advance(self, count: int, tokens: int = 0) -> None:
        self._bars.advance(self._task, count)
        now = time.monotonic()
        if tokens:
            self._tokens += tokens
            speed = (self._tokens - self._tokens_before) / (now - self._started_at)
            text = f"{self._tokens:,} tokens, {_rate_text(speed)}/s"
            self._bars.update(self._task, tokens=text)
        if now - self._drawn_at >= REDRAW_S:
            self._bars.refresh()
            self._drawn_at = now

    def end(self) -> None:
        if self._task is not None:
            self._bars.stop()


def _rate_text(number: float) -> str:
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"


def _duration_text(duration_s: float) -> str:
    minutes, seconds = divmod(round(duration_s), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}:{minutes:02d}:{seconds:02d}"
    return f"{minutes}:{seconds:02d}"
