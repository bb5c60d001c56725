"""A fake CUDA device that runs work as late, and in as odd an order, as CUDA may.

It replaces `gristmill._torch.device.cuda.Cuda`. Tasks on a stream run only when the
device takes a step, so a copy reads host memory late: memory that is reused too early
shows as a wrong value.
"""

import collections
import ctypes
import random
import weakref

import torch


class Event:
    """Done when the stream that recorded it reaches it."""

    def __init__(self, device):
        self._device = device
        self.done = False

    def query(self):
        self._device.run_some()
        return self.done

    def synchronize(self):
        self._device.run_until(lambda: self.done)


class Stream:
    """A queue of tasks; a waiting task delays all later ones."""

    def __init__(self, device):
        self._device = device
        self.tasks = collections.deque()

    def enqueue(self, task):
        """Add a function, which returns False if it cannot be done yet."""
        self.tasks.append(task)

    def record_event(self):
        event = Event(self._device)
        self.enqueue(lambda: setattr(event, "done", True))
        return event

    def wait_event(self, event):
        self.enqueue(lambda: event.done)

    def wait_stream(self, stream):
        self.wait_event(stream.record_event())

    def step(self):
        """Do the first task if possible."""
        if not self.tasks or self.tasks[0]() is False:
            return False
        self.tasks.popleft()
        return True


class FakeCuda:
    """A fake CUDA device.

    Args:
        seed: Seed of the order in which streams advance.
        refuse: Whether registering memory fails.
        pinned: Whether all memory counts as pinned, also memory allocated elsewhere.
    """

    device = torch.device("cpu")

    def __init__(self, seed=0, *, refuse=False, pinned=False):
        self._random = random.Random(seed)
        self._refuse = refuse
        self._pinned = pinned
        self.frozen = False
        self.streams = []
        self.current = self.new_stream()
        self.registered = {}  # Address to size in bytes.
        self.reading = []  # Host addresses of unfinished copies.
        self._blocks = []  # Never freed, so that addresses stay valid.
        self._pools = collections.defaultdict(list)
        self.counts = collections.Counter()

    # Progress of the device.

    def run_some(self):
        for _ in range(0 if self.frozen else self._random.randrange(6)):
            self._random.choice(self.streams).step()

    def run_until(self, done):
        assert not self.frozen, "waits for a device that does nothing"
        while not done():
            streams = self._random.sample(self.streams, len(self.streams))
            assert any(stream.step() for stream in streams) or done(), "deadlock"

    def finish(self):
        self.run_until(lambda: not any(stream.tasks for stream in self.streams))

    def memory_at(self, address):
        """Return the device memory that begins at an address."""
        [block] = [b for b in self._blocks if b.data_ptr() == address]
        return block

    # The interface of Cuda.

    def new_stream(self):
        self.streams.append(Stream(self))
        return self.streams[-1]

    def current_stream(self):
        return self.current

    def new_like(self, host):
        """Return memory of the current stream, which is free for reuse once dropped."""
        stream = self.current
        pool = self._pools[stream, host.nbytes]
        if not pool:
            self.counts["allocations"] += 1
            self._blocks.append(torch.empty(host.nbytes, dtype=torch.uint8))
            pool.append(self._blocks[-1])
        block = pool.pop()
        room = block.view(host.dtype).view(host.shape)

        def free():
            # The next user of the memory writes to it, in the order of the stream.
            stream.enqueue(lambda: block.fill_(0xEE) is block)
            pool.append(block)

        weakref.finalize(room, free).atexit = False
        return room

    def copy(self, room, host, stream):
        source, held = host.data_ptr(), weakref.ref(host)
        target, nbytes = room.data_ptr(), host.nbytes

        def read():
            assert held() is not None, "the host memory went before the copy"
            ctypes.memmove(target, source, nbytes)
            self.reading.remove(source)

        self.reading.append(source)
        stream.enqueue(read)

    def keep_until_done(self, room, stream):
        self.counts["used on another stream"] += 1

    def is_pinned(self, host):
        assert self._range_of(host.data_ptr()) is None
        return self._pinned

    def copy_to_pinned(self, host):
        self.counts["staged"] += 1
        return host.clone()

    def register(self, address, nbytes):
        self.counts["registered"] += 1
        assert address % 4096 == nbytes % 4096 == 0
        if self._refuse:
            return False
        assert self._range_of(address) is None
        self.registered[address] = nbytes
        return True

    def unregister(self, address):
        assert not any(self._range_of(host) == address for host in self.reading)
        del self.registered[address]

    def _range_of(self, address):
        for begin, nbytes in self.registered.items():
            if begin <= address < begin + nbytes:
                return begin
        return None
