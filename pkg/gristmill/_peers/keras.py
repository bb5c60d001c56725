"""Makes Keras accept Gristmill's loaders and datasets in place of Grain's.

Keras recognizes Grain's objects by their class names, rebuilds them from their parts
with the installed Grain, and searches the call stack for Grain's files.  Each function
here patches one module of Keras when a program imports it.
"""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable, Iterator
from types import FrameType, ModuleType
from typing import Any

import numpy as np

from gristmill._dataset.model.iter_dataset import IterDataset
from gristmill._dataset.model.map_dataset import MapDataset
from gristmill.loader import DataLoader

__all__ = ["adapt", "recognise_datasets", "recognise_pipelines"]

_OWN_CLASSES = (DataLoader, IterDataset, MapDataset)
# Packages that call user code: True if they do it like Grain, False if like torch.
_IS_GRAIN_LIKE = {
    "_dataset": True,
    "_engine": True,
    "_observe": True,
    "loader": True,
    "_torch": False,
}


def adapt(adapters: Any) -> None:
    """Patch ``keras.src.trainers.data_adapters`` to accept ours in place of Grain's.

    Versions of Keras that do not support Grain stay unchanged.
    """
    keras_is_grain_dataset = getattr(adapters, "is_grain_dataset", None)
    keras_adapter = getattr(adapters, "GrainDatasetAdapter", None)
    if keras_is_grain_dataset is None or keras_adapter is None:
        return
    own_adapter = _adapter_class(keras_adapter, adapters.data_adapter_utils)

    def is_grain_dataset(x: Any) -> bool:
        return isinstance(x, _OWN_CLASSES) or keras_is_grain_dataset(x)

    def new_adapter(cls: type[Any], dataset: Any) -> Any:
        is_own = isinstance(dataset, _OWN_CLASSES)
        # Python then calls `__init__` of the returned class, a subclass of `cls`.
        return object.__new__(own_adapter if is_own else cls)

    adapters.is_grain_dataset = is_grain_dataset
    keras_adapter.__new__ = new_adapter


def recognise_datasets(utils: Any) -> None:
    """Patch ``keras.src.utils.dataset_utils`` to accept our datasets as Grain's.

    Versions of Keras that do not support Grain there stay unchanged.
    """
    keras_is_grain_dataset = getattr(utils, "is_grain_dataset", None)
    keras_get_type_spec = getattr(utils, "_get_type_spec", None)
    if keras_is_grain_dataset is None or keras_get_type_spec is None:
        return

    # Without `DataLoader`, like Keras's function.
    def is_grain_dataset(dataset: Any) -> bool:
        is_own = isinstance(dataset, (IterDataset, MapDataset))
        return is_own or keras_is_grain_dataset(dataset)

    def get_type_spec(dataset: Any) -> Any:
        # Keras's function imports Grain, and returns its MapDataset for both types.
        is_own = isinstance(dataset, (IterDataset, MapDataset))
        return MapDataset if is_own else keras_get_type_spec(dataset)

    utils.is_grain_dataset = is_grain_dataset
    utils._get_type_spec = get_type_spec


def recognise_pipelines(utils: ModuleType) -> None:
    """Patch preprocessing layers to detect that one of our pipelines calls them.

    The layers then compute on the CPU, like in Grain's pipelines.  `utils` is
    ``keras.src.utils.backend_utils``.  Versions of Keras whose layers do not check this
    stay unchanged.
    """
    keras_in_pipeline = getattr(utils, "in_grain_data_pipeline", None)
    if keras_in_pipeline is None:
        return

    def in_grain_data_pipeline() -> bool:
        return _is_in_pipeline(sys._getframe(1)) or keras_in_pipeline()

    utils.in_grain_data_pipeline = in_grain_data_pipeline  # type: ignore[attr-defined]


def _is_in_pipeline(frame: FrameType | None) -> bool:
    """Return whether the innermost caller of user code is a Grain-like pipeline."""
    while frame is not None:
        package, _, rest = frame.f_globals.get("__name__", "").partition(".")
        if package == "gristmill":
            is_grain_like = _IS_GRAIN_LIKE.get(rest.partition(".")[0])
            if is_grain_like is not None:
                return is_grain_like
        frame = frame.f_back
    return False


def _adapter_class(keras_adapter: Any, utils: Any) -> type[Any]:
    """Return a subclass of Keras's adapter that iterates over Gristmill's elements."""
    tree = importlib.import_module("keras.tree")

    class GristmillAdapter(keras_adapter):  # type: ignore[misc]
        """Passes the elements of a Gristmill loader or dataset to Keras."""

        def __init__(self, dataset: Any) -> None:
            # Keras's attributes.  Its `__init__` refuses classes other than Grain's.
            self._dataset = dataset
            dataset_info = self._get_dataset_info(dataset)
            self._batch_size, self._output_signature = dataset_info

        def _convert_elements(
            self, convert: Convert, **map_options: Any
        ) -> _ConvertedElements:
            convert_leaf = functools.partial(convert, utils)
            return _ConvertedElements(
                self._dataset,
                lambda x: tree.map_structure(convert_leaf, x, **map_options),
            )

        def get_numpy_iterator(self) -> Any:
            return self._convert_elements(_to_numpy, none_is_leaf=False)

        def get_jax_iterator(self) -> Any:
            return self._convert_elements(_to_jax, none_is_leaf=False)

        def get_tf_dataset(self) -> Any:
            tensorflow = importlib.import_module("tensorflow")
            elements = self._convert_elements(_to_tensorflow)
            # `from_generator` does not support lists.
            converted = _ConvertedElements(elements, tree.lists_to_tuples)
            return tensorflow.data.Dataset.from_generator(
                lambda: converted,
                output_signature=tree.map_structure(
                    utils.convert_to_tf_tensor_spec, self._output_signature
                ),
            )

    return GristmillAdapter


# Converts a leaf; the arguments are Keras's data_adapter_utils and the leaf.
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


class _ConvertedElements:
    """A loader or dataset with a function applied to its elements."""

    def __init__(self, dataset: Any, convert: Callable[[Any], Any]) -> None:
        self._dataset = dataset
        self._convert = convert

    def __iter__(self) -> Iterator[Any]:
        return map(self._convert, self._dataset)
