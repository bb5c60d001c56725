"""Readers of records that are 20 ms away: loaders, and bare requests.

Each function takes the URL of a folder, see `far_files.py`, and returns an endless
iterator of batches.
"""

import asyncio
import itertools
import queue
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np

from far_files import BATCH, RECORD_BYTES, RECORDS, SHARDS
from workloads import SEED

# Ranges of NEIGHBOURS consecutive records are shuffled, WINDOW ranges at a time.
NEIGHBOURS = 64
WINDOW = 16


def parse(record: bytes) -> np.ndarray:
    """The user's Map."""
    return np.frombuffer(record, np.uint8)


def gristmill(
    url: str,
    *,
    workers: int = 0,
    windows: bool = False,
    cache_dir: str | None = None,
    epochs: int | None = None,
) -> Iterator[Any]:
    import gristmill as grain

    options = grain.sources.RemoteOptions(cache_dir=cache_dir, cache_bytes=2 << 30)
    source = grain.sources.ArrayRecordDataSource(
        f"{url}/records.array_record",
        remote_options=options if "://" in url else None,
    )
    sampler: Any
    if windows:
        ranges = [NEIGHBOURS] * (RECORDS // NEIGHBOURS)
        sampler = grain.samplers.GroupShuffleSampler(
            ranges, window=WINDOW, num_epochs=epochs, seed=SEED
        )
    else:
        sampler = grain.IndexSampler(
            RECORDS, shuffle=True, num_epochs=epochs, seed=SEED
        )
    body = {"map": staticmethod(parse)}
    operations = [type("Parse", (grain.MapTransform,), body)(), grain.Batch(BATCH)]
    loader = grain.DataLoader(
        data_source=source,
        sampler=sampler,
        operations=operations,
        worker_count=workers,
    )
    return iter(loader)


def bare(url: str, in_flight: int) -> Iterator[Any]:
    """Requests by aiohttp, with `in_flight` at the same time and without decoding."""
    extents = [(i * RECORD_BYTES, RECORD_BYTES) for i in range(RECORDS)]
    received: queue.Queue[bytes] = queue.Queue(8 * BATCH)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(
        target=loop.run_until_complete,
        args=(_request(f"{url}/records.array_record", extents, in_flight, received),),
        daemon=True,
    )
    thread.start()
    while True:
        yield [received.get() for _ in range(BATCH)]


async def _request(
    url: str,
    extents: list[tuple[int, int]],
    in_flight: int,
    received: "queue.Queue[bytes]",
) -> None:
    """Requests shuffled records without end; `extents` are pairs of offset and size."""
    import aiohttp

    rng = np.random.default_rng(SEED)
    order = itertools.chain.from_iterable(
        rng.permutation(len(extents)).tolist() for _ in itertools.count()
    )
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as session:

        async def request_one_by_one() -> None:
            while True:
                begin, size = extents[next(order)]
                headers = {"Range": f"bytes={begin}-{begin + size - 1}"}
                async with session.get(url, headers=headers) as answer:
                    received.put(await answer.read())

        await asyncio.gather(*(request_one_by_one() for _ in range(in_flight)))


def webdataset(url: str, workers: int = 0) -> Iterator[Any]:
    """Tar files of the same records, one after the other, mixed by a buffer.

    The buffer has as many records as Gristmill's windows.
    """
    import torch.utils.data
    import webdataset as wds

    urls = [f"pipe:curl -s -f {url}/shard-{i}.tar" for i in range(SHARDS)]
    dataset = wds.DataPipeline(
        wds.ResampledShards(urls, seed=SEED),
        wds.split_by_worker,
        wds.tarfile_to_samples(),
        wds.shuffle(NEIGHBOURS * WINDOW),
        wds.to_tuple("bin"),
        wds.map_tuple(parse),
        wds.batched(BATCH),
    )
    if not workers:
        return iter(dataset)
    return iter(
        torch.utils.data.DataLoader(dataset, batch_size=None, num_workers=workers)
    )
