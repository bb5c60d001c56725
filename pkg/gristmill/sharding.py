"""Selects the part of the data that a process reads."""

from __future__ import annotations

import dataclasses
import enum
import os
import sys
from typing import Literal, TypeAlias

from gristmill._base import log
from gristmill._base.argument_checks import check_flag, check_integer
from gristmill._base.lazy_names import public_names

__all__ = [
    "NoSharding",
    "Remainder",
    "ShardByJaxProcess",
    "ShardByTorchProcess",
    "ShardOptions",
]


@dataclasses.dataclass(frozen=True)
class ShardOptions:
    """The shard of the data that a process reads.

    Args:
        shard_index: The shard that this process reads, in [0, shard_count).
        shard_count: The total number of shards, at least 1.
        drop_remainder: Whether all shards have the same number of records, and the rest
            is not read.  Otherwise the first shards have one more.

    Raises:
        ValueError: A number is out of range.
        TypeError: A number is not an int.

    Example:
        >>> even_split(7, ShardOptions(shard_index=0, shard_count=2))
        (0, 4)
    """

    shard_index: int
    shard_count: int
    drop_remainder: bool = False

    def __post_init__(self) -> None:
        check_integer("shard_index", self.shard_index)
        check_integer("shard_count", self.shard_count)
        check_flag("drop_remainder", self.drop_remainder)
        if self.shard_count <= 0:
            raise ValueError(
                "Number of shards must be a positive integer but got "
                f"{self.shard_count}."
            )
        if not 0 <= self.shard_index < self.shard_count:
            raise ValueError(
                "Shard shard_index must be in [0, shard_count - 1], shard_count was "
                f"{self.shard_count} and shard_index was {self.shard_index}."
            )


class NoSharding(ShardOptions):
    """A shard of all data, in every process.

    Example:
        >>> NoSharding()
        NoSharding(shard_index=0, shard_count=1, drop_remainder=False)
    """

    def __init__(self) -> None:
        super().__init__(shard_index=0, shard_count=1, drop_remainder=False)


class ShardByJaxProcess(ShardOptions):
    """One shard for each jax process; all data if jax is not installed.

    Args:
        drop_remainder: See `ShardOptions`.

    Example:
        >>> ShardByJaxProcess(drop_remainder=True)  # In a program of one process.
        ShardByJaxProcess(shard_index=0, shard_count=1, drop_remainder=True)
    """

    def __init__(self, drop_remainder: bool = False) -> None:
        index, count = jax_process()
        super().__init__(index, count, drop_remainder)


class ShardByTorchProcess(ShardOptions):
    """One shard for each process of torch.distributed.

    Before ``init_process_group``, the shard is that of the environment variables RANK
    and WORLD_SIZE, which torchrun sets.  Without them, it is all data.

    Args:
        drop_remainder: See `ShardOptions`.

    Raises:
        ValueError: Only one of RANK and WORLD_SIZE is set, or one is not an integer.

    Example:
        >>> rank = ShardByTorchProcess()
        >>> loader = gristmill.load(range(3), num_epochs=1, shard_options=rank)
        >>> list(loader)  # All of it, as this is the only process.
        [0, 1, 2]
    """

    def __init__(self, drop_remainder: bool = False) -> None:
        index, count = torch_process()
        super().__init__(index, count, drop_remainder)


class Remainder(enum.Enum):
    """The handling of an epoch's last records, if they do not fill a batch per rank.

    Ranks take records in turn, and all have the same number of full batches in an
    epoch.  It follows from three numbers, so ranks do not have to communicate.
    Functions that take a `Remainder` also take its value, such as ``"drop"``.

    Attributes:
        DROP: The last records of an epoch's order are left out.
        PAD: Records from the beginning of the epoch's order fill the last batches, and
            a mask marks them as padding.
        WRAP: The same records fill the last batches without a mask, so they count
            twice.

    Example:
        >>> [Remainder(how).batches_per_rank(10, 2, 4) for how in ("drop", "pad")]
        [1, 2]
    """

    DROP = "drop"
    PAD = "pad"
    WRAP = "wrap"

    @classmethod
    def _missing_(cls, value: object) -> Remainder:
        names = ", ".join(repr(member.value) for member in cls)
        raise ValueError(f"remainder must be one of {names}, got {value!r}.")

    def elements_per_rank(
        self, num_examples: int, ranks: int, batch_size: int = 1
    ) -> int:
        """Return the elements of each rank in an epoch, a multiple of the batch size.

        Args:
            num_examples: The total number of records, at least 0.
            ranks: The number of processes that share them, at least 1.
            batch_size: Elements in a batch of one rank, at least 1.

        Returns:
            The number, at least 0, which is the same for all ranks.

        Raises:
            ValueError: A number is out of range.
            TypeError: A number is not an int.
        """
        return self.batches_per_rank(num_examples, ranks, batch_size) * batch_size

    def batches_per_rank(
        self, num_examples: int, ranks: int, batch_size: int = 1
    ) -> int:
        """Return the number of batches of each rank in an epoch.

        Args:
            num_examples: The total number of records, at least 0.
            ranks: The number of processes that share them, at least 1.
            batch_size: Elements in a batch of one rank, at least 1.

        Returns:
            The number, at least 0, which is the same for all ranks.

        Raises:
            ValueError: A number is out of range.
            TypeError: A number is not an int.
        """
        for name, number, minimum in (
            ("num_examples", num_examples, 0),
            ("ranks", ranks, 1),
            ("batch_size", batch_size, 1),
        ):
            check_integer(name, number)
            if number < minimum:
                raise ValueError(f"{name} must be at least {minimum}, got {number}.")
        # NumPy's integers would overflow.
        full, leftover = divmod(int(num_examples), int(ranks) * int(batch_size))
        return full + (leftover > 0 and self is not Remainder.DROP)


# The types that functions accept as a `Remainder`.
AnyRemainder: TypeAlias = Remainder | Literal["drop", "pad", "wrap"]


def even_split(num_examples: int, options: ShardOptions) -> tuple[int, int]:
    """Return the first record of a shard and the one after its last.

    Shards are contiguous, in order, and differ in length by at most one.

    Args:
        num_examples: The total number of records.
        options: The shard, and whether to drop the remainder.

    Returns:
        ``(first, end)``, in [0, num_examples].
    """
    # NumPy's integers, which options may hold, would overflow.
    index, count = int(options.shard_index), int(options.shard_count)
    shard_length, leftover = divmod(num_examples, count)
    first = shard_length * index
    if options.drop_remainder:
        if leftover:
            log.warning(
                "Dropping %d of %d records so that %d shards are equally long.",
                leftover,
                num_examples,
                count,
            )
        return first, first + shard_length
    first += min(index, leftover)
    return first, first + shard_length + (index < leftover)


def jax_process() -> tuple[int, int]:
    """Return this jax process's index and the number of processes, else (0, 1)."""
    try:
        import jax
    except ImportError:
        return 0, 1
    return jax.process_index(), jax.process_count()


def torch_process() -> tuple[int, int]:
    """Return the rank of this process and the world size; (0, 1) without either."""
    # A process group exists only if the program has imported torch.distributed.
    distributed = sys.modules.get("torch.distributed")
    if (
        distributed is not None
        and distributed.is_available()
        and distributed.is_initialized()
    ):
        return distributed.get_rank(), distributed.get_world_size()
    rank, world = os.environ.get("RANK"), os.environ.get("WORLD_SIZE")
    if rank is None and world is None:
        return 0, 1
    if rank is None or world is None:
        missing = "RANK" if rank is None else "WORLD_SIZE"
        raise ValueError(
            "ShardByTorchProcess needs both RANK and WORLD_SIZE in the environment,"
            f" found no {missing}. Start the program with torchrun, call"
            " torch.distributed.init_process_group first, or pass ShardOptions."
        )
    try:
        return int(rank), int(world)
    except ValueError:
        raise ValueError(
            "ShardByTorchProcess needs integers in RANK and WORLD_SIZE, got"
            f" RANK={rank!r} and WORLD_SIZE={world!r}."
        ) from None


def __dir__() -> list[str]:
    return public_names(__all__)
