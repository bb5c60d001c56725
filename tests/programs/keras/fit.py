"""Trains with Keras on data of `grain`, which is Gristmill in one of these ways."""
# ruff: noqa: E402

import sys


class NoGrain:
    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] == "grain":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


match sys.argv[1]:
    case "without grain":
        sys.meta_path.insert(0, NoGrain())
        import gristmill as grain
    case "drop_in":
        import gristmill.drop_in

        gristmill.drop_in.install()
        import grain
    case "keras first":
        import keras

        import gristmill as grain

import warnings

warnings.simplefilter("ignore")
import keras
import numpy as np


class Pair(grain.transforms.Map):
    def map(self, index):
        return rows["x"][index], rows["y"][index]


rows = {"x": np.ones((8, 4), "float32"), "y": np.ones((8, 2), "float32")}
records = grain.MapDataset.range(8).map(lambda i: (rows["x"][i], rows["y"][i])).batch(4)
loader = grain.DataLoader(
    data_source=range(8),
    sampler=grain.samplers.SequentialSampler(8, grain.sharding.NoSharding()),
    operations=[Pair(), grain.transforms.Batch(4)],
)
model = keras.Sequential([keras.layers.Dense(2)])
model.compile("sgd", "mse")
for data in (records, records.to_iter_dataset(), loader):
    model.fit(data, validation_data=data, verbose=0)
    model.evaluate(data, verbose=0)
    print(model.predict(data, verbose=0).shape)

pair = keras.utils.split_dataset(records, left_size=1, preferred_backend="torch")
print(*map(len, pair))
