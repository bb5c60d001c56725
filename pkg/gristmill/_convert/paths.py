"""Finds the files below a folder, and keeps to those that can be read to an end."""

from __future__ import annotations

import functools
import os
import stat

from gristmill._convert.problem import Problem, of_os_error


@functools.lru_cache(maxsize=8)  # A process asks for one folder again and again.
def files_below(folder: str, follow_links: bool) -> tuple[str, ...]:
    """Return the paths in a folder of all files below it, less hidden ones, sorted.

    Links to folders are followed, but to those that they are in.

    Args:
        folder: The folder.
        follow_links: Whether links may lead out of it.

    Raises:
        Problem: One does though it may not, or a folder cannot be read.
    """

    def refuse(error: OSError) -> None:
        raise of_os_error(error, folder)

    found = []
    root = os.path.realpath(folder)
    # The folders that each one to be visited is in, and itself.
    within = {folder: frozenset([_folder_id(folder)])}
    for parent, folders, names in os.walk(folder, onerror=refuse, followlinks=True):
        outer = within.pop(parent)
        visible = [name for name in folders if not name.startswith(".")]
        files = [name for name in names if not name.startswith(".")]
        if not follow_links:
            for name in [*visible, *files]:
                _check_inside(os.path.join(parent, name), root)
        ids = {name: _folder_id(os.path.join(parent, name)) for name in visible}
        folders[:] = [name for name in visible if ids[name] not in outer]
        for name in folders:
            within[os.path.join(parent, name)] = outer | {ids[name]}
        inside = os.path.relpath(parent, folder)
        prefix = "" if inside == "." else inside + "/"
        found += [prefix + name for name in files]
    return tuple(sorted(found))


def _check_inside(path: str, root: str) -> None:
    """Refuse a link that leads out of a folder; one to nothing leads nowhere."""
    if not os.path.islink(path) or not os.path.exists(path):
        return
    target = os.path.realpath(path)
    if os.path.commonpath([root, target]) != root:
        raise Problem(
            f"{path}: a link to {target}, out of the folder. Pass --follow-links to"
            " read what such links lead to."
        )


def regular(path: str) -> os.stat_result:
    """Return what the system tells of a regular file, which is not opened.

    Raises:
        Problem: It is a pipe, a socket or a device, whose reading may never end, or
            is not there.
    """
    if os.path.islink(path) and not os.path.exists(path):
        raise broken_link(path)
    found = _status(path)
    if not stat.S_ISREG(found.st_mode):
        raise Problem(f"{path}: not a regular file.")
    return found


def broken_link(path: str) -> Problem:
    """Return the problem that a link to nothing is."""
    return Problem(f"{path}: a broken link, to {os.readlink(path)}.")


def _folder_id(path: str) -> tuple[int, int]:
    """What a folder has in common with all links to it."""
    found = _status(path)
    return found.st_dev, found.st_ino


def _status(path: str) -> os.stat_result:
    try:
        return os.stat(path)
    except OSError as error:
        raise of_os_error(error, path) from error
