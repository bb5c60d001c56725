"""Code for workers of test_keras.py, apart because importing Keras takes seconds."""

import types

import numpy as np

from gristmill._peers.keras import recognise_pipelines

X = np.random.default_rng(0).normal(size=(34, 4)).astype("float32")
Y = X @ np.ones((4, 2), "float32")


class Pairs:
    """A source of 34 pairs."""

    def __len__(self):
        return len(X)

    def __getitem__(self, index):
        return X[index], Y[index]


def looks_like_pipeline(_):
    """Return what Keras's patched ``in_grain_data_pipeline`` would return here."""
    utils = types.SimpleNamespace(in_grain_data_pipeline=lambda: False)
    recognise_pipelines(utils)
    return utils.in_grain_data_pipeline()
