"""Numbers that OpenTelemetry reads whenever it collects metrics."""

from __future__ import annotations

import collections
import functools
import threading
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

Kind = Literal["counter", "gauge"]


class _Instrument(NamedTuple):
    """An observable instrument of OpenTelemetry.

    Attributes:
        kind: "counter" for a sum, "gauge" for the last number.
        attribute: The name of its attribute.
        unit: The unit, as in UCUM.
        description: What it measures.
    """

    kind: Kind
    attribute: str
    unit: str
    description: str


_INSTRUMENTS = {
    "gristmill.next.calls": _Instrument(
        "counter", "iterator", "{call}", "Calls of next()."
    ),
    "gristmill.next.duration": _Instrument(
        "counter", "iterator", "s", "Time of next(), in which the program waits."
    ),
    "gristmill.read.elements": _Instrument(
        "counter", "source", "{element}", "Elements that a source returned."
    ),
    "gristmill.read.bytes": _Instrument(
        "counter", "source", "By", "Approximate bytes of these elements."
    ),
    "gristmill.read.duration": _Instrument(
        "counter", "source", "s", "Time to read these elements."
    ),
    "gristmill.ready": _Instrument(
        "gauge", "iterator", "{element}", "Elements that were ready at the last look."
    ),
    **{
        f"gristmill.consumed.{unit}": _Instrument(
            "gauge", "source", f"{{{unit[:-1]}}}", f"Delivered {unit} of a source."
        )
        for unit in ("elements", "tokens", "epochs")
    },
}


class TelemetryNumbers:
    """The sum, or the last number, of each instrument by its attribute.

    Any thread may call the methods, except `clear`.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._numbers: dict[str, dict[str, float]] = collections.defaultdict(dict)

    def add(self, instrument: str, attribute: str, amount: float) -> None:
        """Add an amount to a counter."""
        with self._lock:
            numbers = self._numbers[instrument]
            numbers[attribute] = numbers.get(attribute, 0) + amount

    def set(self, instrument: str, attribute: str, number: float) -> None:
        """Set the last number of a gauge."""
        with self._lock:
            self._numbers[instrument][attribute] = number

    def clear(self) -> None:
        """Forget all numbers in a fork of the process, in which they are not its own.

        The lock may belong to a thread that the fork does not have.
        """
        self._lock = threading.Lock()
        self._numbers.clear()

    def register(self, provider: Any) -> None:
        """Create the instruments.

        Args:
            provider: A meter provider of OpenTelemetry; None for the global one.

        Raises:
            ImportError: opentelemetry-api is not installed.
        """
        try:
            from opentelemetry import metrics
        except ImportError as error:
            raise ImportError(
                "OpenTelemetry needs the opentelemetry-api package. Install it with:"
                " pip install 'gristmill[opentelemetry]'"
            ) from error
        meter = metrics.get_meter("gristmill", meter_provider=provider)
        for name, instrument in _INSTRUMENTS.items():
            create = getattr(meter, f"create_observable_{instrument.kind}")
            observe = functools.partial(self._observe, metrics.Observation, name)
            create(
                name,
                callbacks=[observe],
                unit=instrument.unit,
                description=instrument.description,
            )

    def _observe(
        self, observation_class: Any, instrument: str, options: Any
    ) -> Iterator[Any]:
        """Yield the present numbers of an instrument; OpenTelemetry calls this."""
        with self._lock:
            numbers = dict(self._numbers[instrument])
        for value, number in numbers.items():
            yield observation_class(number, {_INSTRUMENTS[instrument].attribute: value})
