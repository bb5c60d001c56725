import contextlib
import os
import random
import select
import signal
import sys
from pathlib import Path

import numpy as np

import gristmill as g
from faults.toolbox import await_gone, children, wait_until, watched
from gristmill import host
from gristmill._host.address import Address

RANKS = 2
BATCH = 4


class Row(g.RandomMapTransform):
    def random_map(self, x, rng):
        return {"row": rng.integers(0, 256, 16 << 10, dtype=np.uint8), "x": x}


def loader(records, shard=(0, 1), workers=2):
    return g.DataLoader(
        data_source=range(records),
        sampler=g.IndexSampler(records, shuffle=True, num_epochs=1, seed=5),
        operations=[Row(), g.Batch(BATCH)],
        shard_options=g.ShardOptions(*shard),
        worker_count=workers,
        streams=2,
        max_restarts=100,
    )


def packed(batch):
    return batch["row"].tobytes() + batch["x"].tobytes()


def run_rank(rank, mode, records, start, commands, answers):
    """Compute a batch for each command, and answer with its bytes."""
    iterator = host.share(loader(records), name=NAME, rank=rank, ranks=RANKS, mode=mode)
    if start is not None:
        iterator.set_state(start)
    with os.fdopen(commands, "rb") as reader, os.fdopen(answers, "wb") as writer:
        while reader.read(1):
            batch = next(iterator, None)
            message = b"" if batch is None else packed(batch)
            state = iterator.get_state()
            for part in (message, state):
                writer.write(len(part).to_bytes(8, "little") + part)
            writer.flush()


class Rank:
    def __init__(self, rank, mode, records, start=None):
        self.rank, self.state, self.ended = rank, start, False
        commands, self.commands = os.pipe()
        self.answers, answers = os.pipe()
        ours = self.commands, self.answers
        self.pid = os.fork()
        if self.pid == 0:
            status = 1
            try:
                for fd in (*ours, *OTHERS):
                    os.close(fd)
                run_rank(rank, mode, records, start, commands, answers)
                status = 0
            finally:
                sys.stdout.flush()
                os._exit(status)
        OTHERS.extend(ours)
        os.close(commands)
        os.close(answers)
        self.reader = os.fdopen(self.answers, "rb", closefd=False)

    def read(self):
        size = int.from_bytes(self.reader.read(8), "little")
        return self.reader.read(size)

    def next(self):
        os.write(self.commands, b"n")
        assert select.select([self.answers], [], [], 60)[0], f"rank {self.rank} hangs"
        batch, self.state = self.read(), self.read()
        assert self.state, f"rank {self.rank} failed"
        return batch

    def end(self, kill):
        if kill:
            os.kill(self.pid, signal.SIGKILL)
        for fd in (self.commands, self.answers):
            OTHERS.remove(fd)
            os.close(fd)
        status = os.waitpid(self.pid, 0)[1]
        assert kill or status == 0, status


def pool_processes():
    """Return the server, its zygotes and its workers."""
    servers = []
    for pid in map(int, filter(str.isdecimal, os.listdir("/proc"))):
        with contextlib.suppress(OSError):
            line = Path(f"/proc/{pid}/cmdline").read_text()
            if f"run_server({NAME!r}" in line:
                servers.append(pid)
    roots = [pid for pid in servers if parent(pid) not in servers]
    zygotes = [child for pid in roots for child in children(pid)]
    workers = [child for pid in zygotes for child in children(pid)]
    return {"server": roots, "zygote": zygotes, "worker": workers}


def parent(pid):
    with contextlib.suppress(OSError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return 0


mode, rank_kills, pool_kills, seed = sys.argv[1], *map(int, sys.argv[2:])
NAME = f"kills-{os.getpid()}"
OTHERS: list[int] = []
chance = random.Random(seed)
kills = ["rank"] * rank_kills + ["pool"] * pool_kills
chance.shuffle(kills)
rounds = 4 * len(kills) + 4
records = rounds * BATCH * (RANKS if mode == "deal" else 1)
wanted = []
for rank in range(RANKS):
    shard = (rank, RANKS) if mode == "deal" else (0, 1)
    wanted.append([packed(batch) for batch in loader(records, shard, workers=0)])
ranks = [Rank(rank, mode, records) for rank in range(RANKS)]
positions = [0] * RANKS
for kill in kills:
    for rank in range(RANKS):
        for _ in range(chance.randrange(2, 5)):
            if positions[rank] < len(wanted[rank]):
                assert ranks[rank].next() == wanted[rank][positions[rank]], (rank, kill)
                positions[rank] += 1
    if kill == "rank":
        rank = chance.randrange(RANKS)
        state = ranks[rank].state
        ranks[rank].end(kill=True)
        ranks[rank] = Rank(rank, mode, records, state)
        continue
    for _ in wait_until("processes of the pool"):
        pids = {kind: found for kind, found in pool_processes().items() if found}
        if "worker" in pids:
            break
    kind = chance.choice(["server", "zygote", "worker"])
    with contextlib.suppress(ProcessLookupError):
        os.kill(chance.choice(pids[kind]), signal.SIGKILL)
# In turn, since a rank waits for one that is `ahead` batches behind.
while any(positions[rank] < len(wanted[rank]) for rank in range(RANKS)):
    rank = min(range(RANKS), key=lambda rank: positions[rank] - len(wanted[rank]))
    assert ranks[rank].next() == wanted[rank][positions[rank]], rank
    positions[rank] += 1
assert all(rank.next() == b"" for rank in ranks)
# SIGKILL of all ranks leaves no process.
left = watched([pid for found in pool_processes().values() for pid in found])
for rank in ranks:
    rank.end(kill=True)
await_gone(left)
assert Address(NAME).connect() is None
print("identical after", len(kills), "kills")
