"""A CUDA device that does everything as late, and in as odd an order, as CUDA may.

It stands in for `gristmill._torch.device.cuda.Cuda`.  What is put on a stream is done
only when the device takes a step, so a copy reads host memory at some later time:
memory that was used again too early shows as a wrong value.
"""

import collections
import ctypes
import random
import weakref

import torch


class Event:
    """Done once the stream that recorded it got there."""

    def __init__(self, device):
        self._device = device
        self.done = False

    def query(self):
        self._device.run_some()
        return self.done

    def synchronize(self):
        self._device.run_until(lambda: self.done)


class Stream:
    """Things to do in turn; what waits holds up what comes after it."""

    def __init__(self, device):
        self._device = device
        self.tasks = collections.deque()

    def enqueue(self, task):
        """Add a function; it returns False while it cannot be done yet."""
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
        """Do the first task, if it can be done."""
        if not self.tasks or self.tasks[0]() is False:
            return False
        self.tasks.popleft()
        return True


class FakeCuda:
    """One device.

    Args:
        seed: Of the order in which streams get on.
        refuse: Whether memory cannot be registered.
        pinned: Whether all memory is pinned, by whoever made it.
    """

    device = torch.device("cpu")

    def __init__(self, seed=0, *, refuse=False, pinned=False):
        self._random = random.Random(seed)
        self._refuse = refuse
        self._pinned = pinned
        self.frozen = False
        self.streams = []
        self.current = self.new_stream()
        self.registered = {}  # Address to bytes.
        self.reading = []  # Host addresses of the copies that are not done.
        self._blocks = []  # All there ever were: addresses stay good.
        self._pools = collections.defaultdict(list)
        self.counts = collections.Counter()

    # How it gets on.

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
        """The memory of the device that begins at an address."""
        [block] = [b for b in self._blocks if b.data_ptr() == address]
        return block

    # What Cuda has.

    def new_stream(self):
        self.streams.append(Stream(self))
        return self.streams[-1]

    def current_stream(self):
        return self.current

    def new_like(self, host):
        """Memory of the current stream: once dropped, free for it at once."""
        stream = self.current
        pool = self._pools[stream, host.nbytes]
        if not pool:
            self.counts["allocations"] += 1
            self._blocks.append(torch.empty(host.nbytes, dtype=torch.uint8))
            pool.append(self._blocks[-1])
        block = pool.pop()
        room = block.view(host.dtype).view(host.shape)

        def free():
            # Whatever takes the memory next writes to it, in the stream's turn.
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
