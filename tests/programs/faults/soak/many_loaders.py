"""Runs loaders of all kinds at once for a given time, with all kinds of faults.

In rounds of half a minute, four threads iterate, close, resume and keep batches.
Meanwhile workers are killed and stopped, the process forks, and signals arrive. After
each round, memory, descriptors and processes in use are measured.
"""

import contextlib
import ctypes
import gc
import itertools
import os
import random
import signal
import sys
import tempfile
import threading
import time

import numpy as np
import psutil
import torch
from array_record.python.array_record_module import ArrayRecordWriter

import gristmill as g
import gristmill.torch
from faults.toolbox import Add, Some, children, descendants, digest
from gristmill.errors import WorkerDied

ROUND_S = 30
THREADS = 4
RECORDS = 600
# Rounds in which caches and allocators reach their final sizes.
WARM_ROUNDS = 8
MOST_GROWTH_KB = 1024  # Within ten minutes.


class Draw(g.RandomMapTransform):
    def random_map(self, x, rng):
        return np.resize(rng.integers(0, 256, 512, dtype=np.uint8), 16 << 10) + x % 7


class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return RECORDS

    def __getitem__(self, index):
        return torch.full((2000,), index)


class Stream(torch.utils.data.IterableDataset):
    def __iter__(self):
        worker = torch.utils.data.get_worker_info()
        step = worker.num_workers if worker else 2
        for index in range(worker.id if worker else 0, RECORDS, step):
            yield torch.full((2000,), index)


def grain_loader(operations, **options):
    sampler = g.IndexSampler(RECORDS, shuffle=True, seed=3, num_epochs=1)
    operations = [*operations, g.Batch(4)]
    return g.DataLoader(
        data_source=options.pop("source", np.arange(RECORDS)),
        sampler=sampler,
        operations=operations,
        streams=2,
        max_restarts=100,
        **options,
    )


def chain(workers):
    ds = g.MapDataset.range(RECORDS).shuffle(seed=5).map(lambda x: np.full(3000, x))
    ds = ds.to_iter_dataset().filter(lambda x: x[0] % 3 != 1).batch(4)
    options = g.MultiprocessingOptions(num_workers=workers)
    return ds.mp_prefetch(options, streams=2)


def torch_loader(kind, dataset, workers):
    return kind(
        dataset,
        batch_size=4,
        num_workers=workers,
        multiprocessing_context="launcher",
        max_restarts=100,
    )


path = os.path.join(tempfile.mkdtemp(), "records.array_record")
writer = ArrayRecordWriter(path, "group_size:1")
for number in range(RECORDS):
    writer.write(b"%06d" % number * 500)
writer.close()
KINDS = {
    "ranges": lambda: grain_loader([Add(), Draw()], worker_count=2),
    "owned": lambda: grain_loader([Some(), Draw()], worker_count=2),
    "records": lambda: grain_loader(
        [], source=g.ArrayRecordDataSource(path), worker_count=2
    ),
    "chain": lambda: chain(2),
    "torch": lambda: torch_loader(gristmill.torch.DataLoader, Numbers(), 2),
    "stateful": lambda: torch_loader(gristmill.torch.StatefulDataLoader, Numbers(), 2),
    "iterable": lambda: torch_loader(gristmill.torch.DataLoader, Stream(), 2),
}
REFERENCES = {kind: digest(make()) for kind, make in KINDS.items()}
tally = dict.fromkeys(("batches", "resumes", "kills", "forks", "signals"), 0)
failures = []


def use(kind, chance, stop, kept):
    """Iterate one loader from its beginning, for a while or to its end."""
    loader, reference = KINDS[kind](), REFERENCES[kind]
    iterator, at = iter(loader), 0
    while at < len(reference) and not stop.is_set():
        if chance.random() < 0.02:
            loader, iterator = resumed(kind, loader, iterator, at)
        batch = next(iterator)
        assert digest([batch]) == reference[at : at + 1], (kind, at)
        if chance.random() < 0.1:
            kept.append((batch, reference[at]))
        at += 1
        tally["batches"] += 1
        if chance.random() < 0.005:
            return
    if at == len(reference):
        assert next(iterator, None) is None, kind


def resumed(kind, loader, iterator, at):
    """Resume from a saved state in a new iterator, if the loader has states."""
    made = KINDS[kind]()
    if kind == "stateful":
        made.load_state_dict(loader.state_dict())
        again = iter(made)
    elif hasattr(iterator, "get_state"):
        again = iter(made)
        again.set_state(iterator.get_state())
    else:
        return loader, iterator
    tally["resumes"] += 1
    return made, again


def work(chance, stop):
    kept = []
    try:
        while not stop.is_set():
            kind = chance.choice(list(KINDS))
            try:
                use(kind, chance, stop, kept)
            except WorkerDied as error:
                # Expected if three workers in a row are killed before they have
                # started, or if two workers die while computing the same output of a
                # chain.
                known = ("cannot start", "by SIGKILL", "2 times in a row")
                if not any(why in str(error) for why in known):
                    raise
            while len(kept) > 20:
                batch, wanted = kept.pop(chance.randrange(len(kept)))
                assert digest([batch]) == [wanted], kind
    except BaseException as error:
        failures.append(f"{kind}: {error!r}")
        stop.set()
        raise


def disturb(chance, stop):
    launchers = children(os.getpid())
    zygotes = [z for launcher in launchers for z in children(launcher)]
    workers = [w for zygote in zygotes for w in children(zygote)]
    what = chance.choices(
        ["kill", "zygote", "pause", "fork", "signal"], [8, 1, 4, 1, 4]
    )
    if what == ["fork"]:
        pid = os.fork()
        if not pid:
            gc.collect()
            os._exit(0)
        os.waitpid(pid, 0)
        tally["forks"] += 1
    elif what == ["signal"]:
        os.kill(os.getpid(), signal.SIGUSR1)
    elif victims := (zygotes if what == ["zygote"] else workers):
        with contextlib.suppress(ProcessLookupError):
            pid = chance.choice(victims)
            if what == ["pause"]:
                os.kill(pid, signal.SIGSTOP)
                stop.wait(0.02)
                os.kill(pid, signal.SIGCONT)
                return
            os.kill(pid, signal.SIGKILL)
            tally["kills"] += 1
            # After three kills without a started worker in between, the loader gives
            # up.
            stop.wait(0.7 if what == ["zygote"] else 0)


def held():
    """Return memory in kB, descriptors and descendants in use while nothing iterates.

    Waits for ending processes first.
    """
    gc.collect()
    until = time.monotonic() + 20
    while True:
        below = len(descendants(os.getpid()))
        if below <= LEAST_PROCESSES or time.monotonic() > until:
            break
        time.sleep(0.05)
    ctypes.CDLL(None).malloc_trim(0)
    here = psutil.Process()
    return here.memory_info().rss // 1024, here.num_fds(), below


def signalled(*_):
    tally["signals"] += 1


seconds, seed = float(sys.argv[1]), int(sys.argv[2])
chance = random.Random(seed)
signal.signal(signal.SIGUSR1, signalled)
LEAST_PROCESSES = 2  # The launcher, and multiprocessing's resource tracker.
end = time.monotonic() + seconds
rounds = []
for number in itertools.count():
    stop = threading.Event()
    threads = [
        threading.Thread(target=work, args=(random.Random(chance.random()), stop))
        for _ in range(THREADS)
    ]
    for thread in threads:
        thread.start()
    round_end = min(end, time.monotonic() + ROUND_S)
    while time.monotonic() < round_end and not stop.wait(chance.random() * 0.3):
        disturb(chance, stop)
    stop.set()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive(), "a loader hangs"
    assert not failures, failures
    rounds.append(held())
    print(number, *rounds[-1], tally, flush=True)
    if time.monotonic() >= end:
        break

memory, descriptors, processes = np.array(rounds[WARM_ROUNDS:] or rounds).T
assert descriptors.max() <= descriptors[0] and processes.max() <= processes[0], rounds
if len(memory) > 1:
    slope = np.polyfit(np.arange(len(memory)) * ROUND_S / 600, memory, 1)[0]
    print(f"memory: {slope:.0f} kB in ten minutes")
    # A slope of fewer rounds is not meaningful.
    assert len(memory) < 30 or slope < MOST_GROWTH_KB, rounds
