"""Carries an exception of the user's code from a worker to the parent.

Its type, arguments, notes and frames arrive: the traceback in the parent ends in
the user's own function, as if it had run there.
"""

from __future__ import annotations

import pickle
import traceback
import types
from typing import Any

import cloudpickle

Frame = tuple[str, str, int]
INTERNAL = ("/gristmill/_engine/", "/gristmill/_hot/", "/gristmill/_launcher.py")


def pack_failure(error: BaseException, worker: int) -> bytes:
    """Everything of `error` that can travel."""
    summary = traceback.extract_tb(error.__traceback__)
    frames = [(f.filename, f.name, f.lineno or 1) for f in summary]
    users = [f for f in frames if not any(part in f[0] for part in INTERNAL)]
    notes = [*getattr(error, "__notes__", []), f"in worker {worker}"]
    text = "".join(traceback.format_exception_only(error))
    parts = (_portable(error), text, notes, users or frames)
    return cloudpickle.dumps(parts, 5)  # type: ignore[no-any-return]


def unpack_failure(data: bytes) -> BaseException:
    """The exception again, with its notes and its frames."""
    pickled, text, notes, frames = pickle.loads(data)
    error = _rebuilt(pickled, text)
    error.__notes__ = list(notes)
    return error.with_traceback(_traceback(frames))


def _portable(error: BaseException) -> bytes | None:
    """A pickle of the exception that is known to load, or None."""
    kind, arguments = type(error), error.args
    attributes = {k: v for k, v in vars(error).items() if k != "__notes__"}
    for extra in (attributes, {}):
        try:
            data: bytes = cloudpickle.dumps((kind, arguments, extra), 5)
            _remake(*pickle.loads(data))
        except Exception:
            continue
        return data
    return None


def _remake(
    kind: type[BaseException], arguments: tuple[Any, ...], attributes: dict[str, Any]
) -> BaseException:
    """An exception without its `__init__`, which may want other arguments."""
    error = kind.__new__(kind, *arguments)
    error.args = arguments
    error.__dict__.update(attributes)
    return error


def _rebuilt(pickled: bytes | None, text: str) -> BaseException:
    if pickled is not None:
        try:
            return _remake(*pickle.loads(pickled))
        except Exception as failure:
            text += f"(it could not be unpickled here: {failure!r})"
    return RuntimeError(f"{text.strip()} (the exception could not be pickled)")


def _traceback(frames: list[Frame]) -> types.TracebackType | None:
    """A traceback that shows `frames`, outermost first.

    A traceback needs real frame objects.  Each is had by running one line of code
    that raises, compiled under the name, file and line of the frame it stands for.
    """
    chain: types.TracebackType | None = None
    for filename, name, line in reversed(frames):
        code = compile("\n" * (line - 1) + "raise RuntimeError", filename, "exec")
        try:
            exec(code.replace(co_name=name), {"__name__": name, "__file__": filename})
        except RuntimeError as error:
            here = error.__traceback__
            assert here is not None and here.tb_next is not None
            frame = here.tb_next
            chain = types.TracebackType(
                chain, frame.tb_frame, frame.tb_lasti, frame.tb_lineno
            )
    return chain
