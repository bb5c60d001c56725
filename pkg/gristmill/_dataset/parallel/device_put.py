"""Prefetches elements to JAX devices."""

from __future__ import annotations

from typing import Any

from gristmill._dataset.model.iter_dataset import IterDataset
from gristmill._dataset.nodes.thread_prefetch import ThreadPrefetchIterDataset


def device_put(
    ds: IterDataset[Any],
    device: Any,
    *,
    cpu_buffer_size: int = 4,
    device_buffer_size: int = 2,
) -> IterDataset[Any]:
    """Prefetch the elements of a dataset to devices.

    Args:
        ds: The dataset.
        device: The second argument of ``jax.device_put``.
        cpu_buffer_size: The most elements that may wait in memory.
        device_buffer_size: The most elements that may wait on the devices.

    Returns:
        The dataset of elements on the devices.

    Raises:
        ImportError: jax is not installed.

    Example:
        >>> import jax
        >>> ds = gristmill.MapDataset.range(4).batch(2).to_iter_dataset()
        >>> ds = gristmill.experimental.device_put(ds, jax.devices()[0])
        >>> [batch.tolist() for batch in ds]
        [[0, 1], [2, 3]]
    """
    try:
        import jax
    except ImportError as error:
        raise ImportError(
            "experimental.device_put needs the jax package. Install it with: pip"
            " install 'gristmill[jax]'"
        ) from error
    prefetched = ThreadPrefetchIterDataset(ds, prefetch_buffer_size=cpu_buffer_size)
    on_device = prefetched.map(lambda element: jax.device_put(element, device))
    on_device = ThreadPrefetchIterDataset(
        on_device, prefetch_buffer_size=device_buffer_size
    )
    # jax.device_put returns before the transfer is done.
    on_device._always_uses_thread = True
    return on_device
