"""One pool of worker processes for all ranks of a host.

Each process that trains has a loader of its own.  With `share`, their workers are those
of one pool: one copy of the data source, and as many worker processes as one loader
has.  The first rank starts the pool, and it ends with the last one.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from gristmill._base.argument_checks import check_integer, kind
from gristmill._base.lazy_names import public_names
from gristmill._host.client import HostPoolOptions
from gristmill._host.launch_variables import find_launch
from gristmill._host.mode import Mode

if TYPE_CHECKING:
    import torch.utils.data

    from gristmill import DataLoader, DataLoaderIterator, IterDataset
    from gristmill._dataset.model.iterator import DatasetIterator
    from gristmill._torch.iterators import LoaderIterator

__all__ = ["share"]

T = TypeVar("T")
# The default of `ahead`.
AHEAD = 16


@overload
def share(
    loader: DataLoader[T],
    *,
    name: str | None = ...,
    rank: int | None = ...,
    ranks: int | None = ...,
    mode: Literal["deal", "broadcast"] = ...,
    ahead: int = ...,
) -> DataLoaderIterator[T]: ...


@overload
def share(
    loader: IterDataset[T],
    *,
    name: str | None = ...,
    rank: int | None = ...,
    ranks: int | None = ...,
    mode: Literal["deal", "broadcast"] = ...,
    ahead: int = ...,
) -> DatasetIterator[T]: ...


@overload
def share(
    loader: torch.utils.data.DataLoader[Any],
    *,
    name: str | None = ...,
    rank: int | None = ...,
    ranks: int | None = ...,
    mode: Literal["deal", "broadcast"] = ...,
    ahead: int = ...,
) -> LoaderIterator: ...


def share(
    loader: Any,
    *,
    name: str | None = None,
    rank: int | None = None,
    ranks: int | None = None,
    mode: Literal["deal", "broadcast"] = "deal",
    ahead: int = AHEAD,
) -> Any:
    """Return an iterator over a loader whose workers are shared by the ranks of a host.

    Call it in each rank with the same loader.  The rank that calls it first starts the
    workers, as many as the loader has, and the others use the same ones.  Outputs lie
    in memory that the ranks share with the workers, so they are not copied.

    Order, random draws and states are those of the loader without `share`.  A state can
    be restored with `share` and without it.

    With ``mode="deal"`` each rank gets a part of the data:

    - A `gristmill.DataLoader` gives rank r what it would give with
      ``shard_options=ShardOptions(r, ranks)``: the elements ``r::ranks`` of its
      sampler's order.  One of `gristmill.load` gives what that would give with them:
      contiguous records.  A loader that has these options stays unchanged.
    - In a chain with `mp_prefetch`, each `MapDataset` that the workers iterate over is
      replaced by its elements ``r::ranks``, or by piece r of each source with
      ``sequential_slice=True``.
    - A torch loader gives what it would give with torch's `DistributedSampler` for this
      rank and its own ``drop_last``; with ``shuffle=True`` that is seeded with the
      loader's `generator`, and with 0 without one.  The sampler's epoch is the
      loader's, see `gristmill.torch.DataLoader.set_epoch`.  A loader with a
      `DistributedSampler` stays unchanged.

    With ``mode="broadcast"`` all ranks get the same outputs, and each is computed once.
    A rank may change its arrays: its changes are not visible in other ranks.  Torch
    loaders draw seeds, so all ranks need the same ``torch.manual_seed`` or `generator`.

    Args:
        loader: A `gristmill.DataLoader`, a chain with one `mp_prefetch`, or a
            `gristmill.torch.DataLoader` or `StatefulDataLoader`, with workers.
        name: The name of the pool, which programs of one user on one host share.  Ranks
            in containers with network namespaces of their own pass the path of a socket
            in a folder that they share: a name with a slash is a path.  By default it
            is made from variables of torchrun, mpirun or Slurm, or from JAX's
            coordinator.  Loaders that are in use at the same time need different names.
        rank: The number of this rank, from 0; by default the one in those variables.
            With ``mode="broadcast"`` the default is its number on this host.
        ranks: The number of ranks; by default the one in those variables.
        mode: "deal" or "broadcast".
        ahead: With ``mode="broadcast"``, the outputs that are kept for slow ranks.  If
            there are more, the others wait, and log a warning that names the slow ones.

    Returns:
        The loader's own kind of iterator: a `DataLoaderIterator`, a `DatasetIterator`
        or an iterator over a torch loader.  For each epoch, call `share` again.

    Raises:
        TypeError: An argument has the wrong type.
        ValueError: An argument is out of range, no variables describe the rank, or the
            loader has no number of workers or cannot be divided.  The first ``next``,
            or `share` with a torch loader, raises it if ranks have different loaders or
            options, or use the same rank.

    Example:
        >>> loader = gristmill.load(range(8), num_epochs=1, worker_count=1)
        >>> batches = share(loader, name="example", rank=1, ranks=2)
        >>> list(batches)
        [4, 5, 6, 7]
    """
    options = _options_of(name, rank, ranks, Mode(mode), ahead)
    return _sharing_of(loader)(loader, options)


def _options_of(
    name: Any, rank: Any, ranks: Any, mode: Mode, ahead: Any
) -> HostPoolOptions:
    """Check the arguments of `share`, and complete them from the environment."""
    if name is not None and (not isinstance(name, str) or not name):
        raise TypeError(f"name must be a str that is not empty, got {name!r}.")
    for argument, value in (("rank", rank), ("ranks", ranks), ("ahead", ahead)):
        if value is not None or argument == "ahead":
            check_integer(argument, value)
    if name is None or rank is None or ranks is None:
        launch = find_launch(mode)
        if launch is None:
            values = {"name": name, "rank": rank, "ranks": ranks}
            missing = ", ".join(f"{key}=" for key in values if values[key] is None)
            raise ValueError(
                f"share needs {missing}: this process has no variables of torchrun,"
                " mpirun or Slurm that describe its rank"
                + (" on this host" if mode is Mode.BROADCAST else "")
                + ", and jax.distributed is not initialized. Pass name=, the same in"
                " all ranks, rank=, from 0, and ranks=, their number."
            )
        name = launch.name if name is None else name
        rank = launch.rank if rank is None else rank
        ranks = launch.ranks if ranks is None else ranks
    if ranks < 1:
        raise ValueError(f"ranks must be at least 1, got {ranks}.")
    if not 0 <= rank < ranks:
        raise ValueError(f"rank must be in [0, ranks - 1], got {rank} of {ranks}.")
    if ahead < 1:
        raise ValueError(f"ahead must be at least 1, got {ahead}.")
    return HostPoolOptions(name, int(rank), int(ranks), mode, int(ahead), 0)


def _sharing_of(loader: Any) -> Callable[[Any, HostPoolOptions], Any]:
    """Return the function that shares a kind of loader."""
    from gristmill.loader import DataLoader

    if isinstance(loader, DataLoader):
        from gristmill._host.shared_loader import share_loader

        return share_loader
    # Not imported before, since it takes as long as to start a worker.
    from gristmill._dataset.model.iter_dataset import IterDataset

    if isinstance(loader, IterDataset):
        from gristmill._host.shared_chain import share_chain

        return share_chain
    torch_data = sys.modules.get("torch.utils.data")
    if torch_data is not None and isinstance(loader, torch_data.DataLoader):
        from gristmill._host.shared_torch_loader import share_torch_loader

        return share_torch_loader
    raise TypeError(
        "loader must be a gristmill.DataLoader, an IterDataset with mp_prefetch, or a"
        f" gristmill.torch.DataLoader, got {kind(loader)}."
    )


def __dir__() -> list[str]:
    return public_names(__all__)
