"""Check that an installed wheel works and uses its own libraries of codecs."""

import pathlib

import numpy as np

import gristmill as grain

LIBRARIES = ("brotlidec", "jpeg", "snappy", "zstd")


def mapped(library):
    """Return the files of a library that this process has loaded."""
    lines = pathlib.Path("/proc/self/maps").read_text().splitlines()
    return {line.split()[-1] for line in lines if f"/lib{library}" in line}


loader = grain.load(
    np.arange(64), shuffle=True, seed=1, num_epochs=1, batch_size=8, worker_count=2
)
assert sorted(np.concatenate([*loader])) == [*range(64)]
for library in LIBRARIES:
    for path in mapped(library) or {f"no lib{library}"}:
        assert "/gristmill.libs/" in path, f"{path} is not the wheel's"
print(f"gristmill {grain.__version__} gives batches of two workers, with its own")
print(f"{', '.join(LIBRARIES)}")
