"""Grain's Dataset API.  Its names are public in `gristmill` and `.experimental`.

A `MapDataset` is indexed, and an `IterDataset` is iterated over.  A `DatasetIterator`
iterates and has a state.  A chain of datasets computes nothing before an element is
requested.

`model` defines the base classes, `nodes` has a file for each kind of node, and
`parallel` runs chains in workers.  Start with `model/map_dataset.py`.
"""

# Each import registers the nodes that methods of datasets create.
from gristmill._dataset.nodes import apply as apply
from gristmill._dataset.nodes import batch as batch
from gristmill._dataset.nodes import block_map as block_map
from gristmill._dataset.nodes import bucket as bucket
from gristmill._dataset.nodes import counted_mix as counted_mix
from gristmill._dataset.nodes import deal as deal
from gristmill._dataset.nodes import epochs as epochs
from gristmill._dataset.nodes import iterable_source as iterable_source
from gristmill._dataset.nodes import map as map
from gristmill._dataset.nodes import on_error as on_error
from gristmill._dataset.nodes import order as order
from gristmill._dataset.nodes import plan_packing as plan_packing
from gristmill._dataset.nodes import planned_mix as planned_mix
from gristmill._dataset.nodes import shard as shard
from gristmill._dataset.nodes import source as source
from gristmill._dataset.nodes import to_iter as to_iter
from gristmill._dataset.nodes import with_options as with_options
from gristmill._dataset.nodes import zip as zip
from gristmill._dataset.parallel import consumed as consumed
from gristmill._dataset.parallel import length_file as length_file
from gristmill._dataset.parallel import process_prefetch as process_prefetch
from gristmill._dataset.parallel import replay as replay
