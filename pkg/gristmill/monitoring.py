"""Metrics for Prometheus, under Grain's names, and for OpenTelemetry.

| metric | kind | label |
| --- | --- | --- |
| ``grain_python_dataset_next_duration_ns`` | histogram | |
| ``grain_python_dataset_prefetch_buffer_ready_count`` | histogram | |
| ``grain_python_data_sources_bytes_read`` | counter | ``source``, its class |
| ``grain_python_dataset_source_read_time_ns`` | histogram | ``source``, its class |
| ``grain_python_data_loader_iterator_get_next`` | histogram | |
| ``gristmill_consumed_elements`` | gauge | ``source``, its name |
| ``gristmill_consumed_tokens`` | gauge | ``source``, its name |
| ``gristmill_consumed_epochs`` | gauge | ``source``, its name |

The last three have the last result of an iterator's `consumed`.  Metrics are recorded
after `start` was called.  If ``ENABLE_PYGRAIN_PROMETHEUS_TELEMETRY=true`` is in the
environment, ``import gristmill`` calls `start` and serves the metrics on port 9431, or
on ``PYGRAIN_PROMETHEUS_PORT``.  The metrics of worker processes are added up.  They
need the package prometheus_client.

By default, the server listens on 127.0.0.1, which only programs on the same machine can
reach.  Set ``GRISTMILL_PROMETHEUS_HOST`` to listen on another address, such as 0.0.0.0
for all.

`start_opentelemetry` records metrics as observable instruments of OpenTelemetry, which
needs the package opentelemetry-api:

| instrument | kind | attribute |
| --- | --- | --- |
| ``gristmill.next.calls`` | counter | ``iterator``, "dataset" or "loader" |
| ``gristmill.next.duration`` in s | counter | ``iterator`` |
| ``gristmill.read.elements`` | counter | ``source``, its class |
| ``gristmill.read.bytes`` | counter | ``source`` |
| ``gristmill.read.duration`` in s | counter | ``source`` |
| ``gristmill.ready`` | gauge | ``iterator`` |
| ``gristmill.consumed.elements`` | gauge | ``source``, its name |
| ``gristmill.consumed.tokens`` | gauge | ``source``, its name |
| ``gristmill.consumed.epochs`` | gauge | ``source``, its name |

Only the process that calls it records; workers and other forks do not.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import os
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from gristmill._base import log
from gristmill._base.lazy_names import public_names
from gristmill._base.open_telemetry import TelemetryNumbers
from gristmill._base.sizes import size_of
from gristmill._base.source_counts import SourceCounts

__all__ = [
    "DEFAULT_HOST",
    "DEFAULT_PORT",
    "is_on",
    "serve",
    "setup_telemetry",
    "start",
    "start_opentelemetry",
]

DEFAULT_HOST = "127.0.0.1"
"""The default address of the metrics server."""

DEFAULT_PORT = 9431
"""The default port of the metrics server."""

_ENABLE_VARIABLE = "ENABLE_PYGRAIN_PROMETHEUS_TELEMETRY"
_HOST_VARIABLE = "GRISTMILL_PROMETHEUS_HOST"
_PORT_VARIABLE = "PYGRAIN_PROMETHEUS_PORT"
_FOLDER_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
# Set for child processes; its value is the id of the process that serves their metrics.
_SERVER_PID_VARIABLE = "GRISTMILL_PROMETHEUS_SERVED_BY"
_CONSUMED_UNITS = ("elements", "tokens", "epochs")
_HOUR_NS = 3_600_000_000_000

# The metrics of this process, by argument name in `start`; empty until `start`.
_metrics: dict[str, Any] = {}
# The numbers for OpenTelemetry; empty until `start_opentelemetry`.
_telemetry: list[TelemetryNumbers] = []


class _Collector:
    """Provides the metrics to the registry without reserving their names.

    Grain's metrics have the same names, and a program may import both in any order.
    """

    def describe(self) -> list[Any]:
        return []

    def collect(self) -> Iterator[Any]:
        _unregister_grain_metrics()
        for metric in _metrics.values():
            yield from metric.collect()


_collector = _Collector()


def _unregister_grain_metrics() -> None:
    """Remove Grain's metrics, which have the same names, from the registry."""
    grain = sys.modules.get("grain._src.core.prometheus_monitoring")
    registry = _client().REGISTRY
    for metric in list(getattr(grain, "_prometheus_metrics", {}).values()):
        with contextlib.suppress(KeyError):  # It was removed before.
            registry.unregister(metric)


def is_on() -> bool:
    """Return whether metrics are recorded.

    Example:
        >>> is_on()
        False
    """
    return bool(_metrics or _telemetry)


def start() -> None:
    """Begin to record metrics, in prometheus_client's default registry.

    Raises:
        ImportError: prometheus_client is not installed.

    Example:
        >>> start()
        >>> is_on()
        True
    """
    if _metrics:
        return
    client = _client()
    time_buckets = _powers(2, _HOUR_NS)
    _metrics.update(
        next_ns=client.Histogram(
            "grain_python_dataset_next_duration_ns",
            "Time of next() on the last iterator of a dataset, in nanoseconds.",
            buckets=time_buckets,
            registry=None,
        ),
        ready=client.Histogram(
            "grain_python_dataset_prefetch_buffer_ready_count",
            "Consecutive elements that were ready when one was requested. If there are"
            " few, reading limits the speed.",
            registry=None,
        ),
        bytes_read=client.Counter(
            "grain_python_data_sources_bytes_read",
            "Approximate bytes of the elements that a data source returned.",
            labelnames=("source",),
            registry=None,
        ),
        read_ns=client.Histogram(
            "grain_python_dataset_source_read_time_ns",
            "Time to read one element of a source, in nanoseconds.",
            labelnames=("source",),
            buckets=_powers(4, _HOUR_NS),
            registry=None,
        ),
        get_next=client.Histogram(
            "grain_python_data_loader_iterator_get_next",
            "Time of next() on the iterator of a DataLoader, in nanoseconds.",
            buckets=time_buckets,
            registry=None,
        ),
        **{
            f"consumed_{unit}": client.Gauge(
                f"gristmill_consumed_{unit}",
                f"The {unit} that were delivered from a source.",
                labelnames=("source",),
                registry=None,
                multiprocess_mode="livesum",
            )
            for unit in _CONSUMED_UNITS
        },
    )
    _unregister_grain_metrics()
    client.REGISTRY.register(_collector)


def start_opentelemetry(meter_provider: Any = None) -> None:
    """Begin to record metrics for OpenTelemetry; later calls do nothing.

    Args:
        meter_provider: An `opentelemetry.metrics.MeterProvider`; None for the global
            one.

    Raises:
        ImportError: opentelemetry-api is not installed.

    Example:
        >>> start_opentelemetry()  # doctest: +SKIP
    """
    if not _telemetry:
        numbers = TelemetryNumbers()
        numbers.register(meter_provider)
        _telemetry.append(numbers)
        os.register_at_fork(after_in_child=_stop_opentelemetry)


def _stop_opentelemetry() -> None:
    """Record nothing in a fork: its exporter would send its parent's numbers again."""
    for numbers in _telemetry:
        numbers.clear()
    _telemetry.clear()


def serve(port: int | None = None, host: str | None = None) -> int | None:
    """Record metrics, and serve them over HTTP from a thread.

    Args:
        port: The port; None for ``PYGRAIN_PROMETHEUS_PORT``, else 9431.
        host: The address to listen on; None for ``GRISTMILL_PROMETHEUS_HOST``, else
            127.0.0.1, which only programs on this machine can reach.  "0.0.0.0" listens
            on all addresses.

    Returns:
        The port, or None if it is taken, for example by another process's metrics.

    Raises:
        ImportError: prometheus_client is not installed.
        OSError: This machine does not have the address.
        ValueError: The port in the environment is not a number.

    Example:
        >>> serve(port=9432)  # doctest: +SKIP
        9432
    """
    start()
    client = _client()
    port = _port() if port is None else port
    host = host or os.environ.get(_HOST_VARIABLE) or DEFAULT_HOST
    registry = client.REGISTRY
    if _FOLDER_VARIABLE in os.environ:
        from prometheus_client import multiprocess

        registry = client.CollectorRegistry()
        collector: Any = multiprocess.MultiProcessCollector
        collector(registry)
    try:
        client.start_http_server(port, host, registry)
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        log.warning(
            "Port %d is in use, so this process does not serve its metrics there. Set"
            " %s to a free port, or ignore this if another process serves the metrics"
            " of this one.",
            port,
            _PORT_VARIABLE,
        )
        return None
    return port


def setup_telemetry() -> None:
    """Serve metrics if the environment enables it; ``import gristmill`` calls this.

    A child of a process that serves metrics only records its own, in a folder that both
    share.

    Example:
        >>> setup_telemetry()
        >>> is_on()
        False
    """
    if os.environ.get(_ENABLE_VARIABLE, "").lower() != "true":
        return
    if _SERVER_PID_VARIABLE in os.environ:
        start()
        return
    if _FOLDER_VARIABLE not in os.environ:
        import tempfile

        folder = tempfile.mkdtemp(prefix="prometheus_multiproc_")
        os.environ[_FOLDER_VARIABLE] = folder
        atexit.register(_remove, folder, os.getpid())
    os.environ[_SERVER_PID_VARIABLE] = str(os.getpid())
    serve()


def record_next(durations_ns: Sequence[int]) -> None:
    """Record calls of ``next`` on a dataset's last iterator."""
    _record_calls("next_ns", "dataset", durations_ns)


def record_get_next(durations_ns: Sequence[int]) -> None:
    """Record calls of ``next`` on the iterator of a loader."""
    _record_calls("get_next", "loader", durations_ns)


def _record_calls(metric: str, iterator: str, durations_ns: Sequence[int]) -> None:
    if _metrics:
        for duration in durations_ns:
            _metrics[metric].observe(duration)
    for numbers in _telemetry:
        numbers.add("gristmill.next.calls", iterator, len(durations_ns))
        numbers.add("gristmill.next.duration", iterator, sum(durations_ns) / 1e9)


def record_ready(elements: int) -> None:
    """Record the number of elements that were ready when one was requested."""
    if _metrics:
        _metrics["ready"].observe(elements)
    for numbers in _telemetry:
        numbers.set("gristmill.ready", "dataset", elements)


def record_read(source: str, elements: Sequence[Any], total_ns: int) -> None:
    """Record elements that a source returned.

    Args:
        source: The name of the source's class.
        elements: The elements.
        total_ns: The time to read all of them, in ns.
    """
    nbytes = sum(map(size_of, elements))
    if _metrics:
        _metrics["bytes_read"].labels(source).inc(nbytes)
        histogram = _metrics["read_ns"].labels(source)
        for _ in elements:
            histogram.observe(total_ns / len(elements))
    for numbers in _telemetry:
        numbers.add("gristmill.read.elements", source, len(elements))
        numbers.add("gristmill.read.bytes", source, nbytes)
        numbers.add("gristmill.read.duration", source, total_ns / 1e9)


def record_consumed(counts: SourceCounts) -> None:
    """Record what an iterator has delivered so far.

    Args:
        counts: The counts by the name of the source.
    """
    for name, count in counts.items():
        for unit in _CONSUMED_UNITS:
            number = getattr(count, unit)
            if number is None:
                continue
            if _metrics:
                _metrics[f"consumed_{unit}"].labels(name).set(number)
            for numbers in _telemetry:
                numbers.set(f"gristmill.consumed.{unit}", name, number)


def _client() -> Any:
    try:
        import prometheus_client
    except ImportError as error:
        raise ImportError(
            "Metrics need the prometheus_client package. Install it with: pip install"
            " 'gristmill[prometheus]'"
        ) from error
    return prometheus_client


def _port() -> int:
    text = os.environ.get(_PORT_VARIABLE)
    if not text:
        return DEFAULT_PORT
    if not text.isdecimal() or not 0 < int(text) < 65536:
        raise ValueError(
            f"{_PORT_VARIABLE} must be a port, from 1 to 65535, got {text!r}."
        )
    return int(text)


def _powers(base: int, end: int) -> list[float]:
    """Return the powers of `base` below `end`, from 1 on."""
    return [float(base**i) for i in range(64) if base**i < end]


def _remove(folder: str, owner: int) -> None:
    # A fork inherits the exit handlers.
    if os.getpid() == owner:
        import shutil

        shutil.rmtree(folder, ignore_errors=True)


def __dir__() -> list[str]:
    return public_names(__all__)
