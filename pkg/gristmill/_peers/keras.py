"""Lets Keras train on Gristmill's loaders and datasets.

Keras takes Grain's objects, which it knows by the names of their classes, and makes new
ones of the installed Grain from their parts.  Ours are iterated over as they are.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from gristmill._dataset.model.iter_dataset import IterDataset
from gristmill._dataset.model.map_dataset import MapDataset
from gristmill.loader import DataLoader

__all__ = ["adapt"]

_OURS = (DataLoader, IterDataset, MapDataset)


def adapt(adapters: Any) -> None:
    """Let ``keras.src.trainers.data_adapters`` take ours wherever it takes Grain's.

    Versions of Keras that know no Grain stay as they are.
    """
    known = getattr(adapters, "is_grain_dataset", None)
    theirs = getattr(adapters, "GrainDatasetAdapter", None)
    if known is None or theirs is None:
        return
    ours = _adapter_class(theirs, adapters.data_adapter_utils)

    def is_grain_dataset(x: Any) -> bool:
        return isinstance(x, _OURS) or known(x)

    def make(cls: type[Any], dataset: Any) -> Any:
        return object.__new__(ours if isinstance(dataset, _OURS) else cls)

    adapters.is_grain_dataset = is_grain_dataset
    theirs.__new__ = make


def _adapter_class(theirs: Any, utils: Any) -> type[Any]:
    """Keras's adapter class, with iterators over what Gristmill gives."""
    tree = importlib.import_module("keras.tree")

    class GristmillAdapter(theirs):  # type: ignore[misc]
        """Gives Keras the elements of a loader or dataset of Gristmill's."""

        def __init__(self, dataset: Any) -> None:
            self._dataset = dataset
            found = self._get_dataset_info(dataset)
            self._batch_size, self._output_signature = found

        def _converted(self, convert: Convert, **how: Any) -> _Converted:
            one = functools.partial(convert, utils)
            return _Converted(
                self._dataset, lambda x: tree.map_structure(one, x, **how)
            )

        def get_numpy_iterator(self) -> Any:
            return self._converted(_to_numpy, none_is_leaf=False)

        def get_jax_iterator(self) -> Any:
            return self._converted(_to_jax, none_is_leaf=False)

        def get_tf_dataset(self) -> Any:
            tensorflow = importlib.import_module("tensorflow")
            elements = self._converted(_to_tensorflow)
            converted = _Converted(elements, tree.lists_to_tuples)
            return tensorflow.data.Dataset.from_generator(
                lambda: converted,
                output_signature=tree.map_structure(
                    utils.convert_to_tf_tensor_spec, self._output_signature
                ),
            )

    return GristmillAdapter


# What becomes of a leaf, given Keras's data_adapter_utils and the leaf.
Convert = Callable[[Any, Any], Any]


def _to_numpy(utils: Any, x: Any) -> Any:
    if not isinstance(x, np.ndarray) and hasattr(x, "__array__"):
        return np.asarray(x.cpu() if utils.is_torch_tensor(x) else x)
    return x


def _to_jax(utils: Any, x: Any) -> Any:
    if utils.is_scipy_sparse(x):
        return utils.scipy_sparse_to_jax_sparse(x)
    if utils.is_tensorflow_sparse(x):
        return utils.tf_sparse_to_jax_sparse(x)
    return x


def _to_tensorflow(utils: Any, x: Any) -> Any:
    if x is None:
        tensorflow = importlib.import_module("tensorflow")
        return tensorflow.experimental.Optional.empty(None)
    if utils.is_scipy_sparse(x):
        return utils.scipy_sparse_to_tf_sparse(x)
    if utils.is_jax_sparse(x):
        return utils.jax_sparse_to_tf_sparse(x)
    return x


class _Converted:
    """What a function makes of the elements of a loader or dataset."""

    def __init__(self, dataset: Any, convert: Callable[[Any], Any]) -> None:
        self._dataset = dataset
        self._convert = convert

    def __iter__(self) -> Iterator[Any]:
        return map(self._convert, self._dataset)
