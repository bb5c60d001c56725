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

_OURS = (DataLoader, IterDataset, MapDataset)
# Packages that call user code: True if they do it like Grain, False if like torch.
_CALLERS = {
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


def recognise_datasets(utils: Any) -> None:
    """Patch ``keras.src.utils.dataset_utils`` to accept our datasets as Grain's.

    Versions of Keras that do not support Grain there stay unchanged.
    """
    known = getattr(utils, "is_grain_dataset", None)
    spec = getattr(utils, "_get_type_spec", None)
    if known is None or spec is None:
        return

    def is_grain_dataset(dataset: Any) -> bool:
        return isinstance(dataset, (IterDataset, MapDataset)) or known(dataset)

    def get_type_spec(dataset: Any) -> Any:
        # Keras's function imports Grain, and returns its MapDataset for both types.
        ours = isinstance(dataset, (IterDataset, MapDataset))
        return MapDataset if ours else spec(dataset)

    utils.is_grain_dataset = is_grain_dataset
    utils._get_type_spec = get_type_spec


def recognise_pipelines(utils: ModuleType) -> None:
    """Patch preprocessing layers to detect that one of our pipelines calls them.

    The layers then compute on the CPU, like in Grain's pipelines.  `utils` is
    ``keras.src.utils.backend_utils``.  Versions of Keras whose layers do not check this
    stay unchanged.
    """
    known = getattr(utils, "in_grain_data_pipeline", None)
    if known is None:
        return

    def in_grain_data_pipeline() -> bool:
        return _is_in_pipeline(sys._getframe(1)) or known()

    utils.in_grain_data_pipeline = in_grain_data_pipeline  # type: ignore[attr-defined]


def _is_in_pipeline(frame: FrameType | None) -> bool:
    """Return whether the innermost caller of user code is a Grain-like pipeline."""
    while frame is not None:
        package, _, rest = frame.f_globals.get("__name__", "").partition(".")
        if package == "gristmill":
            found = _CALLERS.get(rest.partition(".")[0])
            if found is not None:
                return found
        frame = frame.f_back
    return False


def _adapter_class(theirs: Any, utils: Any) -> type[Any]:
    """Return a subclass of Keras's adapter that iterates over Gristmill's elements."""
    tree = importlib.import_module("keras.tree")

    class GristmillAdapter(theirs):  # type: ignore[misc]
        """Passes the elements of a Gristmill loader or dataset to Keras."""

        def __init__(self, dataset: Any) -> None:
            self._dataset = dataset
            found = self._get_dataset_info(dataset)
            self._batch_size, self._output_signature = found

        def _convert_elements(self, convert: Convert, **how: Any) -> _ConvertedElements:
            one = functools.partial(convert, utils)
            return _ConvertedElements(
                self._dataset, lambda x: tree.map_structure(one, x, **how)
            )

        def get_numpy_iterator(self) -> Any:
            return self._convert_elements(_to_numpy, none_is_leaf=False)

        def get_jax_iterator(self) -> Any:
            return self._convert_elements(_to_jax, none_is_leaf=False)

        def get_tf_dataset(self) -> Any:
            tensorflow = importlib.import_module("tensorflow")
            elements = self._convert_elements(_to_tensorflow)
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
