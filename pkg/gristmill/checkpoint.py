"""Saves the position of an iterator next to a model's checkpoint, with Orbax.

Orbax is imported at the first use of `CheckpointSave` or `CheckpointRestore`.  If it is
not installed, these two names do not exist.
"""

from __future__ import annotations

import abc
import dataclasses
import json
import sys
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any, ClassVar

from gristmill._base import shard_files
from gristmill._base.lazy_names import ORBAX, public_names
from gristmill._base.object_repr import call_text
from gristmill.sharding import jax_process

if TYPE_CHECKING:
    # `_argument_classes` makes these classes.  Any stands for Orbax's base class, which
    # type checkers do not read.
    class CheckpointSave(Any):  # type: ignore[misc]
        """Ask Orbax to save the position of the iterator `item`.

        Args:
            item: The iterator.
        """

        item: Any

        def __init__(self, item: Any) -> None: ...

    class CheckpointRestore(Any):  # type: ignore[misc]
        """Ask Orbax to restore the position of the iterator `item`.

        Args:
            item: The iterator.
        """

        item: Any

        def __init__(self, item: Any) -> None: ...


__all__ = ["CheckpointHandler", "Checkpointable"]

# Examples of the two classes.
_SAVE_EXAMPLE = """
        >>> import tempfile
        >>> import orbax.checkpoint as ocp
        >>> iterator = iter(gristmill.load(range(10)))
        >>> with ocp.CheckpointManager(tempfile.mkdtemp()) as manager:
        ...     manager.save(1, args=CheckpointSave(iterator))
        True
"""
_RESTORE_EXAMPLE = """
        >>> import tempfile
        >>> import orbax.checkpoint as ocp
        >>> iterator = iter(gristmill.load(range(10)))
        >>> with ocp.CheckpointManager(tempfile.mkdtemp()) as manager:
        ...     saved = manager.save(next(iterator), args=CheckpointSave(iterator))
        ...     manager.wait_until_finished()
        ...     iterator = iter(gristmill.load(range(10)))  # In the next process.
        ...     next(manager.restore(0, args=CheckpointRestore(iterator)))
        1
"""

# Names that exist only if a package is installed.
_OPTIONAL = {"CheckpointRestore": ORBAX, "CheckpointSave": ORBAX}

# The type that Orbax writes into a checkpoint.  It is Grain's, so that both libraries
# can read each other's checkpoints.
_GRAIN_TYPE = "grain._src.python.checkpoint.handler.CheckpointHandler"
_OWN_TYPE = "gristmill.checkpoint.CheckpointHandler"


class CheckpointHandler:
    """Saves and restores an iterator for Orbax, in one file for each jax process.

    The file has the bytes of ``iterator.get_state()``, or its JSON if the state is a
    dict.  Another number of processes can restore an `experimental.ElasticIterator`.
    If its datasets are shared among processes, there is another file for each dataset.

    Example:
        >>> manager.save(                                       # doctest: +SKIP
        ...     step, args=ocp.args.Composite(data=CheckpointSave(iterator)))
    """

    _type_name: ClassVar[str] = _GRAIN_TYPE

    def __init__(self) -> None:
        # A manager that gets a handler looks up the handler's argument classes.
        if "orbax.checkpoint" in sys.modules:
            _argument_classes()

    def __repr__(self) -> str:
        return call_text(self)

    def save(self, directory: Any, item: Any = None, args: Any = None) -> None:
        """Write the position of an iterator to a folder.

        Args:
            directory: The folder, which exists.
            item: The iterator, or None for ``args.item``.
            args: A `CheckpointSave`.
        """
        iterator = _item_of(item, args)
        file = _file_in(directory)
        if shard_files.has_shards(iterator):
            shard_files.save_shards(file.parent, iterator)
        file.write_text(_text_of(iterator.get_state()))

    def restore(self, directory: Any, item: Any = None, args: Any = None) -> Any:
        """Set an iterator to the position in a folder, and return the iterator.

        Args:
            directory: The folder that `save` wrote to.
            item: The iterator, or None for ``args.item``.
            args: A `CheckpointRestore`.

        Returns:
            The iterator, which continues at the position.

        Raises:
            ValueError: The folder has no file of this process, or, for an
                `experimental.ElasticIterator`, of another number of processes.
        """
        iterator = _item_of(item, args)
        folder = _file_in(directory).parent
        if _files_of_others(folder) and shard_files.has_shards(iterator):
            shard_files.restore_shards(folder, iterator)
        else:
            _set_text(iterator, _read(directory, iterator))
        iterator.start_prefetch()
        return iterator

    def structure(self, directory: Any) -> None:
        """Return None, because a position has no structure for Orbax.

        Args:
            directory: The folder of the checkpoint; not used.
        """

    def metadata(self, directory: Any) -> None:
        """Return None, because a position has no metadata.

        Args:
            directory: The folder of the checkpoint; not used.
        """

    def finalize(self, directory: Any) -> None:
        """Do nothing, because `save` has finished.

        Args:
            directory: The folder of the checkpoint; not used.
        """

    def close(self) -> None:
        """Do nothing, because there is nothing to close."""

    @classmethod
    def typestr(cls) -> str:
        """Return the handler's name in checkpoints.

        It is Grain's name, or that of the subclass.
        """
        if cls is CheckpointHandler:
            return cls._type_name
        return f"{cls.__module__}.{cls.__qualname__}"


class Checkpointable(abc.ABC):
    """Orbax's asynchronous protocol, for iterators that have a state.

    The file is that of `CheckpointHandler`.

    Example:
        >>> class Count(Checkpointable):
        ...     done = 0
        ...     def get_state(self):
        ...         return {"done": self.done}
        ...     def set_state(self, state):
        ...         self.done = state["done"]
        >>> Count().get_state()
        {'done': 0}
    """

    @abc.abstractmethod
    def get_state(self) -> Any:
        """Return the position as bytes, or as an object that JSON can represent."""

    @abc.abstractmethod
    def set_state(self, state: Any) -> None:
        """Continue at a position that `get_state` returned.

        Args:
            state: The result of `get_state`.
        """

    @property
    def _fits_all_processes(self) -> bool:
        """Whether the state of any process fits this one."""
        return False

    async def save(self, directory: Any) -> Awaitable[None]:
        """Take the current state, and write it after Orbax has made the folder.

        Args:
            directory: An object whose ``await_creation()`` returns the folder.

        Returns:
            An awaitable that writes the file.
        """
        return _write_later(directory, _text_of(self.get_state()))

    async def load(self, directory: Any) -> Awaitable[None]:
        """Restore the state from a folder, in the background.

        Args:
            directory: The folder that `save` wrote to.

        Returns:
            An awaitable that reads the file and sets the state.

        Raises:
            ValueError: The folder has no file of this process.  Raised when awaited.
        """
        return _restore_later(directory, self)


async def _write_later(directory: Any, text: str) -> None:
    import asyncio  # Slow to import, but a caller that awaits this has imported it.

    file = _file_in(await directory.await_creation())
    await asyncio.to_thread(file.write_text, text)


async def _restore_later(directory: Any, iterator: Checkpointable) -> None:
    import asyncio

    text = await asyncio.to_thread(_read, directory, iterator)
    _set_text(iterator, text)


def _read(directory: Any, iterator: Any) -> str:
    """Return the saved state of an iterator in this process."""
    file = _file_in(directory)
    if isinstance(iterator, Checkpointable) and iterator._fits_all_processes:
        file = next(iter(_files_of_others(file.parent)), file)
    if not file.exists():
        raise ValueError(
            f"File {file} does not exist. It was saved by another number of jax"
            " processes, or the folder is not a checkpoint of an iterator."
        )
    text: str = file.read_text()
    return text


def _files_of_others(folder: Any) -> list[Any]:
    """Return the files of a checkpoint that another number of processes saved."""
    count = shard_files.saved_process_count(folder)
    if count == jax_process()[1]:
        return []
    return sorted(folder.glob(f"process_*-of-{count}.json"))


def _text_of(state: Any) -> str:
    return state.decode() if isinstance(state, bytes) else json.dumps(state, indent=4)


def _set_text(iterator: Any, text: str) -> None:
    # `set_state` takes the type that `get_state` returns.
    as_bytes = isinstance(iterator.get_state(), bytes)
    iterator.set_state(text.encode() if as_bytes else json.loads(text))


def _item_of(item: Any, args: Any) -> Any:
    if item is not None:
        return item
    if args is None:
        raise ValueError(
            "item and args must not both be None. Pass the iterator as item=, or in"
            " args=CheckpointSave(...) or args=CheckpointRestore(...)."
        )
    return args.item


def _file_in(directory: Any) -> Any:
    import pathlib

    folder = pathlib.Path(directory) if isinstance(directory, str) else directory
    index, count = jax_process()
    return folder / f"process_{index}-of-{count}.json"


def _argument_classes() -> dict[str, Any]:
    """Return the module's names, after registering the argument classes with Orbax."""
    if "CheckpointSave" in globals():
        return globals()
    import orbax.checkpoint as ocp

    classes = {}
    # Orbax rejects a second handler of the same name, and Grain may be imported before
    # or after this.  Only checkpoints need Grain's name.
    CheckpointHandler._type_name = _OWN_TYPE
    try:
        for name, verb, example in (
            ("CheckpointSave", "save", _SAVE_EXAMPLE),
            ("CheckpointRestore", "restore", _RESTORE_EXAMPLE),
        ):
            text = f"Ask Orbax to {verb} the position of the iterator `item`."
            text += "\n\n    Args:\n        item: The iterator."
            text += f"\n\n    Example:{example}    "
            bases, names = (ocp.args.CheckpointArgs,), {"__doc__": text}
            classes[name] = dataclasses.make_dataclass(
                name, [("item", Any)], bases=bases, namespace=names
            )
            classes[name].__module__ = __name__  # For pickle.
            register = ocp.args.register_with_handler
            register(CheckpointHandler, **{f"for_{verb}": True})(classes[name])
    finally:
        CheckpointHandler._type_name = _GRAIN_TYPE
    globals().update(classes)
    return globals()


# Hide it from type checkers, which would accept every name.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name in ("CheckpointSave", "CheckpointRestore"):
            try:
                return _argument_classes()[name]
            except ImportError as error:
                raise AttributeError(
                    f"{__name__}.{name} needs Orbax. Install it with: pip install"
                    " orbax-checkpoint"
                ) from error
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return public_names(__all__, _OPTIONAL)
