import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from gristmill.jax import prefetch_to_device
from unit.public.test_jax import first_column, loader

devices = jax.devices()
assert len(devices) == 4, devices
mesh = Mesh(np.array(devices).reshape(2, 2), ("data", "model"))
rows = NamedSharding(mesh, PartitionSpec("data"))
blocks = NamedSharding(mesh, PartitionSpec("data", "model"))
whole = NamedSharding(mesh, PartitionSpec())


def check(batch, sharding, expected):
    assert batch.sharding == sharding and (np.asarray(batch) == expected).all()
    for part in batch.addressable_shards:
        assert (np.asarray(part.data) == expected[part.index]).all()


for sharding in (rows, blocks, whole):
    for number, batch in enumerate(prefetch_to_device(loader(), sharding)):
        first = np.arange(4.0 * number, 4.0 * number + 4)
        check(batch, sharding, np.repeat(first[:, None], 256, axis=1))
    assert number == 9

# Slots of workers are copied or kept alive for every kind of placement.
made = loader(records=6400, batch=64, worker_count=2, streams=1)
for where in (rows, blocks, devices[1], None):
    batches = prefetch_to_device(made, where)
    kept = list(batches)
    batches.close()
    for number, batch in enumerate(kept):
        assert first_column(batch) == [64.0 * number + row for row in range(64)]
with jax.default_device(devices[1]):
    [placed, *_] = prefetch_to_device(made)
assert placed.devices() == {devices[1]}

# A tree of shardings may end above the leaves of the batch.
array = np.arange(8.0).reshape(4, 2)
batch = {"x": (array, [array]), "y": array, "z": array}
places = {"x": (blocks, rows), "y": devices[3], "z": None}
[placed] = prefetch_to_device([batch], places)
check(placed["x"][0], blocks, array)
check(placed["x"][1][0], rows, array)
assert placed["y"].devices() == {devices[3]}
assert placed["z"].devices() == {devices[0]}
refused = prefetch_to_device([batch], {"x": rows})
try:
    next(refused)
except ValueError as error:
    assert "symmetric difference on key sets is" in str(error), error
else:
    raise AssertionError("a tree that does not fit was taken")

# A PartitionSpec needs a mesh.
try:
    prefetch_to_device([array], PartitionSpec("data"))
except ValueError as error:
    assert "no mesh is set. Call jax.set_mesh" in str(error), error
else:
    raise AssertionError("a PartitionSpec was taken without a mesh")
with jax.set_mesh(mesh):
    batches = prefetch_to_device([{"x": array}], {"x": PartitionSpec("data", "model")})
    check(next(batches)["x"], blocks, array)
