"""Which part of the data this process reads."""

from __future__ import annotations

import dataclasses
import enum
import os
import sys
from typing import Literal, TypeAlias

from gristmill._base import log
from gristmill._base.checks import check_flag, check_integer
from gristmill._base.listing import listed

__all__ = [
    "NoSharding",
    "Remainder",
    "ShardByJaxProcess",
    "ShardByTorchProcess",
    "ShardOptions",
]


@dataclasses.dataclass(frozen=True)
class ShardOptions:
    """Say which of how many shards to read.

    Args:
        shard_index: The shard that this process reads, in [0, shard_count).
        shard_count: Shards in all, at least 1.
        drop_remainder: Whether all shards get equally many records and what is
            left over is not read. Otherwise the first shards get one more.

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
    """Read all data in every process.

    Example:
        >>> NoSharding()
        NoSharding(shard_index=0, shard_count=1, drop_remainder=False)
    """

    def __init__(self) -> None:
        super().__init__(shard_index=0, shard_count=1, drop_remainder=False)


class ShardByJaxProcess(ShardOptions):
    """Give each jax process one shard; one shard in all where jax is missing.

    Args:
        drop_remainder: As in `ShardOptions`.

    Example:
        >>> ShardByJaxProcess(drop_remainder=True)  # In a program of one process.
        ShardByJaxProcess(shard_index=0, shard_count=1, drop_remainder=True)
    """

    def __init__(self, drop_remainder: bool = False) -> None:
        index, count = jax_process()
        super().__init__(index, count, drop_remainder)


class ShardByTorchProcess(ShardOptions):
    """Give each process of torch.distributed one shard.

    Before ``init_process_group`` the environment variables RANK and WORLD_SIZE,
    which torchrun sets, decide; without them there is one shard in all.

    Args:
        drop_remainder: As in `ShardOptions`.

    Raises:
        ValueError: Only one of RANK and WORLD_SIZE is set, or one is no integer.

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
    """Say what becomes of the records that do not fill a batch of every rank.

    Ranks take records in turn, and each has equally many full batches in an epoch.
    That follows from three numbers alone, so ranks need not talk to agree on it.
    Whatever takes a `Remainder` takes its value, such as ``"drop"``, as well.

    Attributes:
        DROP: The last records of an epoch's order are left out.
        PAD: Records from the beginning of the epoch's order fill the last batches, and
            a mask says that they are no data.
        WRAP: The same records without a mask: they count twice.

    Example:
        >>> [Remainder(how).batches_per_rank(10, 2, 4) for how in ("drop", "pad")]
        [1, 2]
    """

    DROP = "drop"
    PAD = "pad"
    WRAP = "wrap"

    @classmethod
    def _missing_(cls, value: object) -> Remainder:
        names = ", ".join(repr(each.value) for each in cls)
        raise ValueError(f"remainder must be one of {names}, got {value!r}.")

    def elements_per_rank(
        self, num_examples: int, ranks: int, batch_size: int = 1
    ) -> int:
        """Return how many elements each rank has in an epoch, a multiple of the batch.

        Args:
            num_examples: Records in all, at least 0.
            ranks: Processes that share them, at least 1.
            batch_size: Elements of a batch of one rank, at least 1.

        Raises:
            ValueError: A number is out of range.
            TypeError: A number is not an int.
        """
        return self.batches_per_rank(num_examples, ranks, batch_size) * batch_size

    def batches_per_rank(
        self, num_examples: int, ranks: int, batch_size: int = 1
    ) -> int:
        """Return how many batches each rank has in an epoch.

        Args:
            num_examples: Records in all, at least 0.
            ranks: Processes that share them, at least 1.
            batch_size: Elements of a batch of one rank, at least 1.

        Raises:
            ValueError: A number is out of range.
            TypeError: A number is not an int.
        """
        least = {"num_examples": 0, "ranks": 1, "batch_size": 1}
        numbers = (num_examples, ranks, batch_size)
        for (name, low), number in zip(least.items(), numbers, strict=True):
            check_integer(name, number)
            if number < low:
                raise ValueError(f"{name} must be at least {low}, got {number}.")
        # NumPy's integers would overflow.
        whole, rest = divmod(int(num_examples), int(ranks) * int(batch_size))
        return whole + (rest > 0 and self is not Remainder.DROP)


# What may be passed as one.
AnyRemainder: TypeAlias = Remainder | Literal["drop", "pad", "wrap"]


def even_split(num_examples: int, options: ShardOptions) -> tuple[int, int]:
    """Return the first record of a shard and the one after its last.

    Shards are contiguous, in order, and differ in length by at most one.

    Args:
        num_examples: Records in all.
        options: Which shard, and whether the remainder is dropped.
    """
    # NumPy's integers, which options may hold, would overflow.
    index, count = int(options.shard_index), int(options.shard_count)
    each, rest = divmod(num_examples, count)
    first = each * index
    if options.drop_remainder:
        if rest:
            log.warning(
                "Dropping %d of %d records so that %d shards are equally long.",
                rest,
                num_examples,
                count,
            )
        return first, first + each
    first += min(index, rest)
    return first, first + each + (index < rest)


def jax_process() -> tuple[int, int]:
    """Return the index of this jax process and their number; (0, 1) without jax."""
    try:
        import jax
    except ImportError:
        return 0, 1
    return jax.process_index(), jax.process_count()


def torch_process() -> tuple[int, int]:
    """Return the rank of this process and the world size; (0, 1) without either."""
    # A process group exists only where the program has imported torch.distributed.
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
            "ShardByTorchProcess needs both RANK and WORLD_SIZE, but the environment"
            f" has no {missing}. Start the program with torchrun, call"
            " torch.distributed.init_process_group first, or pass ShardOptions."
        )
    try:
        return int(rank), int(world)
    except ValueError:
        raise ValueError(
            "ShardByTorchProcess needs integers in RANK and WORLD_SIZE, but found"
            f" RANK={rank!r} and WORLD_SIZE={world!r}."
        ) from None


def __dir__() -> list[str]:
    return listed(__all__)
