"""Records when stages ran, in the processes of a run whose report has a trace.

The process that reports begins a `Recording`.  Its workers find the folder of the
recording in their environment.  Each process writes its intervals to a file there.
"""

from __future__ import annotations

import collections
import contextlib
import json
import os
import threading
from collections.abc import Iterable, Iterator

from gristmill._base.trace import Interval, Trace

# The most intervals of a process, and of a whole trace.  Later ones are not recorded.
MAX_PROCESS_INTERVALS = 50_000
MAX_INTERVALS = 200_000
# Stages of a run besides those of `stage_times`.
NEXT = ":next"
CONSUME = ":consume"
WAIT = ":wait"
_FOLDER_VARIABLE = "GRISTMILL_TRACE_FOLDER"


class Recorder:
    """Records the intervals of one process; any thread may call the methods.

    Args:
        folder: The folder of the recording.
        process_name: The name of this process in the trace.
    """

    def __init__(self, folder: str, process_name: str) -> None:
        self._path = os.path.join(folder, str(os.getpid()))
        with open(self._path, "w") as file:
            file.write(f"{json.dumps(process_name)}\n")
        self._remaining = MAX_PROCESS_INTERVALS
        # (stage, id and name of the thread, start and end in ns) of each interval that
        # is not in the file.
        self._intervals: collections.deque[tuple[str, int, str, int, int]]
        self._intervals = collections.deque()

    @property
    def has_ended(self) -> bool:
        """Whether it drops intervals: there are too many, or the run has ended."""
        return self._remaining <= 0

    def add(self, intervals: Iterable[tuple[str, int, int]]) -> None:
        """Add intervals of this thread: (stage, start, end) of `perf_counter_ns`."""
        # `Thread.native_id` of a fork's thread is that of its parent.
        thread, thread_name = threading.get_native_id(), threading.current_thread().name
        for stage, start_ns, end_ns in intervals:
            if self._remaining <= 0:
                return
            self._remaining -= 1
            self._intervals.append((stage, thread, thread_name, start_ns, end_ns))

    def flush(self) -> None:
        """Write the intervals to the file, which is kept if this process is killed."""
        lines = []
        with contextlib.suppress(IndexError):  # Another thread may add or flush.
            while True:
                lines.append(f"{json.dumps(self._intervals.popleft())}\n")
        if lines:
            try:
                with open(self._path, "a", opener=_open_existing) as file:
                    file.writelines(lines)
            except OSError:  # The recording has ended, or the disk is full.
                self._remaining = 0


def _open_existing(path: str, flags: int) -> int:
    return os.open(path, flags & ~os.O_CREAT)


# The recorder of each process, by its id: a fork is not recorded.
_recorders: dict[int, Recorder] = {}


def current_recorder() -> Recorder | None:
    """Return the recorder of this process, or None if nothing is recorded."""
    return _recorders.get(os.getpid()) if _recorders else None


def start_in_worker(worker: int) -> None:
    """Record the intervals of this worker if the process that started it does."""
    folder = os.environ.get(_FOLDER_VARIABLE)
    if folder is None:
        return
    with contextlib.suppress(OSError):  # The recording has ended.
        # Another user may have made a folder of this name since.
        if os.stat(folder).st_uid == os.geteuid():
            _recorders[os.getpid()] = Recorder(folder, f"worker {worker}")


class Recording:
    """The intervals of a run, complete after the run."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def read(self) -> Trace:
        """Return all intervals.  The names are those of stages."""
        if (recorder := current_recorder()) is not None:
            recorder.flush()
        process_names: dict[int, str] = {}
        thread_names: dict[tuple[int, int], str] = {}
        intervals = []
        pids = os.listdir(self._folder)
        limit = min(MAX_PROCESS_INTERVALS, MAX_INTERVALS // len(pids))
        complete = True
        for pid in pids:
            process = int(pid)
            with open(os.path.join(self._folder, pid)) as file:
                name, *lines = file.read().splitlines() or ['""']
            process_names[process] = json.loads(name)
            complete = complete and len(lines) < limit
            for line in lines[:limit]:
                with contextlib.suppress(ValueError):  # The process was killed.
                    stage, thread, thread_name, start_ns, end_ns = json.loads(line)
                    thread_names[process, thread] = thread_name
                    intervals.append(Interval(process, thread, stage, start_ns, end_ns))
        intervals.sort(key=lambda interval: (interval.start_ns, -interval.end_ns))
        return Trace(tuple(intervals), process_names, thread_names, complete)


@contextlib.contextmanager
def recording() -> Iterator[Recording]:
    """Record the intervals of this process, and of the workers that it starts.

    Raises:
        ValueError: This process is recorded already.
    """
    import shutil  # Slow to import.
    import tempfile

    pid, parent = os.getpid(), tempfile.mkdtemp(prefix="gristmill-trace-")
    folder = os.path.join(parent, "running")
    try:
        os.mkdir(folder)
        recorder = Recorder(folder, "main")
        if _recorders.setdefault(pid, recorder) is not recorder:
            raise ValueError(
                "Another report(trace=True) is running in this process. Wait for its"
                " end."
            )
        os.environ[_FOLDER_VARIABLE] = folder
        try:
            yield Recording(folder)
        finally:
            del _recorders[pid]
            os.environ.pop(_FOLDER_VARIABLE, None)
            # A worker that still runs writes no more files then.
            os.rename(folder, os.path.join(parent, "ended"))
    finally:
        shutil.rmtree(parent, ignore_errors=True)
