# Grain's names exist only after install().
# ruff: noqa: E402
import gristmill.drop_in

gristmill.drop_in.install()
from grain._src.core import sharding, tree
from grain._src.python.dataset import dataset, stats
from grain._src.python.experimental.index_shuffle.python import index_shuffle_module


class Doubled(dataset.DatasetIterator):
    @stats.record_next_duration_if_output
    @stats.trace_input_pipeline_next(stage_category=stats.IPL_CAT_PREPROCESSING)
    def __next__(self):
        with stats.Timer() as _, self._stats.record_self_time():
            return tree.map_structure(lambda x: 2 * x, next(self._parent))

    def get_state(self):
        return self._parent.get_state()

    def set_state(self, state):
        self._parent.set_state(state)


class DoubledDataset(dataset.IterDataset):
    def __iter__(self):
        return Doubled(iter(self._parent))


records = dataset.MapDataset.range(3).map(lambda i: {"i": i}).to_iter_dataset()
print(list(DoubledDataset(records)))
print(sharding.even_split(7, sharding.ShardOptions(1, 2)))
print(index_shuffle_module.index_shuffle(0, max_index=9, seed=1, rounds=4))
