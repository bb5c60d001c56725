"""Prints batches of instances of classes that are JAX pytrees."""

import dataclasses
import sys

import jax
import numpy as np

import gristmill


@jax.tree_util.register_pytree_node_class
class Point:
    def __init__(self, x, y):
        self.x, self.y = x, y

    def tree_flatten(self):
        return (self.x, self.y), None

    @classmethod
    def tree_unflatten(cls, aux, children):
        return cls(*children)


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Sample:
    image: np.ndarray
    name: str = dataclasses.field(metadata={"static": True})


@jax.tree_util.register_static
class Nothing:
    def __eq__(self, other):
        return isinstance(other, Nothing)

    def __hash__(self):
        return 0


class Make(gristmill.MapTransform):
    def map(self, i):
        return Point(np.int64(i), [Sample(np.full(2, i), "a"), Nothing()])


def main():
    loader = gristmill.load(
        range(4),
        num_epochs=1,
        transformations=[Make()],
        batch_size=2,
        worker_count=int(sys.argv[1]),
    )
    for batch in loader:
        sample, nothing = batch.y
        assert [type(batch), type(sample), type(nothing)] == [Point, Sample, Nothing]
        print(batch.x.tolist(), sample.image.tolist(), sample.name)


if __name__ == "__main__":
    main()
