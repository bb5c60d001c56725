"""Shares the workers of a chain of datasets."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from gristmill._dataset.model.iter_dataset import IterDataset
from gristmill._dataset.model.iterator import DatasetIterator
from gristmill._dataset.model.node import with_parents
from gristmill._dataset.nodes.slicing import check_parts, slice_chain
from gristmill._dataset.parallel.process_prefetch import ProcessPrefetchIterDataset
from gristmill._host.backend import HostWorkers, check_workers_of_host
from gristmill._host.client import HostPoolOptions
from gristmill._host.mode import Mode
from gristmill._host.programs import WHOLE, Part


def share_chain(
    dataset: IterDataset[Any], options: HostPoolOptions
) -> DatasetIterator[Any]:
    """Return an iterator of a rank.

    Raises:
        ValueError: The chain does not have one `mp_prefetch` with workers of this
            machine, or cannot be divided.
    """
    nodes = [*_prefetch_nodes(dataset)]
    if len(nodes) != 1:
        raise ValueError(
            "share needs a chain with one mp_prefetch, but this one has"
            f" {len(nodes)}. "
            + (
                "Share one of its parts."
                if nodes
                else "End it with .mp_prefetch(MultiprocessingOptions(num_workers=4))."
            )
        )
    (node,) = nodes
    check_workers_of_host(
        "chain",
        "its mp_prefetch",
        "num_workers",
        node._backend,
        node._options.num_workers,
        node._program.streams,
    )
    shared: IterDataset[Any] = _replace(dataset, node, _with_pool(node, options))
    return iter(shared)


def _with_pool(
    node: ProcessPrefetchIterDataset[Any], options: HostPoolOptions
) -> ProcessPrefetchIterDataset[Any]:
    """Return a copy of a node that uses a pool, with the part of a rank."""
    program, part = node._program, WHOLE
    dataset = program.dataset
    if options.mode is Mode.DEAL and options.ranks > 1:
        part = Part(options.rank, options.ranks, program.sequential)
        check_parts(dataset, options.ranks)
        dataset = slice_chain(dataset, *part[:3])
    parts = {
        "kind": "chain",
        "dataset": program.dataset,
        "streams": program.streams,
        "sequential_slice": program.sequential,
        "worker_init_fn": program.worker_init_fn,
    }
    backend = HostWorkers(
        node.worker_count,
        node._options.per_worker_buffer_size,
        options,
        parts,
        base=program,
        part=part,
    )
    shared: ProcessPrefetchIterDataset[Any] = ProcessPrefetchIterDataset(
        dataset,
        node._options,
        program.worker_init_fn,
        program.sequential,
        program.parts if node._has_fixed_streams else None,
        backend,
    )
    shared._program = dataclasses.replace(shared._program, numbers=program.numbers)
    return shared


def _prefetch_nodes(dataset: Any) -> Iterator[ProcessPrefetchIterDataset[Any]]:
    if isinstance(dataset, ProcessPrefetchIterDataset):
        yield dataset
    for parent in dataset._parents:
        yield from _prefetch_nodes(parent)


def _replace(dataset: Any, node: Any, replacement: Any) -> Any:
    """Return a chain with a node replaced."""
    if dataset is node:
        return replacement
    if not any(found is node for found in _prefetch_nodes(dataset)):
        return dataset
    parents = [_replace(parent, node, replacement) for parent in dataset._parents]
    return with_parents(dataset, parents)
