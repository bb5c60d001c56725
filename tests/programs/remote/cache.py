"""One of several processes that use a cache: cache.py WAY FOLDER SEED_OR_URL."""

import os
import random
import resource
import sys

import numpy as np

from gristmill import _core

way, folder, argument = sys.argv[1:]
MIB = 1 << 20
BYTES = 40 * MIB
CONTENT = np.random.default_rng(0).bytes(3 * MIB + 12_345)


def origin(name):
    return name, 22, len(CONTENT)


def keep(cache, rng):
    name = rng.randrange(12)
    offset = rng.randrange(len(CONTENT))
    size = rng.randrange(1, min(500_000, len(CONTENT) - offset) + 1)
    begin, count = cache.pages_of(origin(name), offset, size)
    cache.write(origin(name), begin, CONTENT[begin : begin + count])


def check(cache, rng):
    name = rng.randrange(12)
    offset = rng.randrange(len(CONTENT))
    size = rng.randrange(1, min(100_000, len(CONTENT) - offset) + 1)
    data = cache.read(origin(name), offset, size)
    assert data in (None, CONTENT[offset : offset + size])


def fill():
    cache = _core.RangeCache(folder, BYTES)
    rng = random.Random(int(argument))
    return cache, rng


if way == "write":
    cache, rng = fill()
    while True:
        keep(cache, rng)
        print("kept", flush=True)
elif way == "check":
    cache, rng = fill()
    for _ in range(2_000):
        check(cache, rng)
    print("right")
elif way == "both":
    cache, rng = fill()
    for _ in range(300):
        keep(cache, rng)
        check(cache, rng)
        check(cache, rng)
    print("right")
elif way == "full":
    # Writes beyond this file size fail, as on a full disk.
    _core.RangeCache(folder, BYTES)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2 * MIB, 2 * MIB))
    from gristmill.sources import RemoteOptions
    from gristmill.sources._remote import RemoteFile

    options = RemoteOptions(cache_dir=folder, cache_bytes=BYTES)
    file = RemoteFile(argument, options=options)
    for _ in range(2):
        for begin in range(0, len(CONTENT), 100_000):
            expected = CONTENT[begin : begin + 100_000]
            assert file.read_range(begin, len(expected)) == expected
    print("right")
elif way == "read_only":
    os.chmod(folder, 0o555)
    for name in os.listdir(folder):
        os.chmod(os.path.join(folder, name), 0o444)
    if os.getuid() == 0:  # Root ignores permissions.
        os.chdir(folder)
        folder = "."
        os.setuid(65534)
    cache = _core.RangeCache(folder, BYTES)
    wanted = 11, 22, len(CONTENT)
    if cache.read(wanted, 5, 1000) == CONTENT[5:1005]:
        print("served")
    told = [cache.write(wanted, 2 * MIB, CONTENT[2 * MIB : 3 * MIB]) for _ in "ab"]
    assert "write failed" in told[0], told
    assert told[1] == "", told
    if cache.read(wanted, 2 * MIB, 10) is None:
        print("not kept")
