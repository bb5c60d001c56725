"""The description of a rank that joins a pool, and its comparison with other ranks."""

from __future__ import annotations

from typing import NamedTuple

from gristmill._host.mode import Mode
from gristmill._pool.identity import names_of_differences


class Joining(NamedTuple):
    """The first message of a rank.

    Attributes:
        version: The version of Gristmill that it uses.
        pid: Its process.
        rank: Its number.
        ranks: The number of ranks.
        mode: How ranks divide the outputs.
        workers: The number of workers.
        ahead: See `Units`.
        memory_limit: The bytes of shared memory; 0 for 80 % of the available memory.
        cores: The cores that it may use.
        joins_again: Whether it had joined a server that has ended.
        parts: Maps names of the loader's parts to digests; see
            `gristmill._pool.identity`.
    """

    version: str
    pid: int
    rank: int
    ranks: int
    mode: Mode
    workers: int
    ahead: int
    memory_limit: int
    cores: frozenset[int]
    joins_again: bool
    parts: dict[str, str]


def describe_conflict(name: str, before: Joining, joining: Joining) -> str:
    """Return the reason why a rank that is in use cannot join.

    Args:
        name: The name of the pool.
        before: The process that uses the rank.
        joining: The process that joins.
    """
    return (
        f"Rank {joining.rank} of the pool {name!r} must be one process, but processes"
        f" {before.pid} and {joining.pid} both use it. Pass another rank, or another"
        " name."
    )


def describe_difference(name: str, first: Joining, joining: Joining) -> str:
    """Return the reason why a rank cannot join the first one; empty if it can.

    Args:
        name: The name of the pool.
        first: The rank that joined first.
        joining: The rank that joins.
    """
    if joining.version != first.version:
        return (
            f"The pool {name!r} runs Gristmill {first.version}, but rank"
            f" {joining.rank} (process {joining.pid}) uses {joining.version}. Use the"
            " same version, or another name."
        )
    for field in ("ranks", "mode", "ahead", "memory_limit"):
        ours, theirs = getattr(first, field), getattr(joining, field)
        if ours != theirs:
            if field == "memory_limit":
                ours, theirs = ours or "the default", theirs or "the default"
            return (
                f"All ranks of the pool {name!r} must pass the same {field}, but rank"
                f" {first.rank} (process {first.pid}) passed {ours!s}, and rank"
                f" {joining.rank} (process {joining.pid}) passed {theirs!s}."
            )
    if not (names := names_of_differences(first.parts, joining.parts)):
        return ""
    return (
        f"All ranks of the pool {name!r} must have the same loader, but the loaders of"
        f" rank {first.rank} (process {first.pid}) and of rank {joining.rank} (process"
        f" {joining.pid}) differ in {names}. Make them alike, or"
        " pass a name= of its own for each loader that is in use."
    )


def describe_slow_ranks(
    pool: str, rank: int, ahead: int, slow: list[int], joined: list[int]
) -> str:
    """Return the text of a warning that names the ranks that are slow.

    Args:
        pool: The text for the pool.
        rank: The rank that waits.
        ahead: See `Units`.
        slow: The ranks for which it waits.
        joined: The ranks that have joined.
    """
    absent = sorted(set(slow) - set(joined))
    texts = []
    if absent:
        texts.append(f"has not joined: {', '.join(map(str, absent))}")
    if late := sorted(set(slow) & set(joined)):
        texts.append(f"has not taken its outputs: {', '.join(map(str, late))}")
    return (
        f"Rank {rank} waits, because another rank of {pool} {'; '.join(texts)}. At most"
        f" ahead={ahead} outputs are kept for slow ranks. Pass a larger one, or find"
        " out why they are slow."
    )
