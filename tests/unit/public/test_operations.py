"""Tests that old operations give Grain's records, errors and warnings."""

import numpy as np
import pytest

from gristmill import operations, records, transforms

grain = pytest.importorskip("grain")
old = pytest.importorskip("grain.python")

ROWS = [{"x": np.array([i, i + 1]), "y": i} for i in range(5)]


def stream(library, rows=ROWS):
    return (
        library.Record(library.RecordMetadata(i, 10 + i, np.random.default_rng(i)), row)
        for i, row in enumerate(rows)
    )


def run(name, *args, rows=ROWS, **kwargs):
    """Return the results of our operation and Grain's for the same records."""
    results = []
    for namespace, library in ((operations, records), (old, grain)):
        operation = getattr(namespace, name)(*args, **kwargs)
        try:
            made = list(operation(stream(library, rows)))
        except Exception as error:
            results.append((type(error), str(error), type(error.__cause__)))
        else:
            results.append(
                [(r.metadata.index, r.metadata.record_key, r.data) for r in made]
            )
    return results


def plain(result):
    """Convert arrays to values that can be compared by ==."""
    if isinstance(result, np.ndarray):
        return result.dtype, result.tolist()
    if isinstance(result, dict):
        return {key: plain(value) for key, value in result.items()}
    if isinstance(result, (list, tuple)):
        return [plain(value) for value in result]
    return result


@pytest.mark.parametrize(
    ("name", "args", "kwargs"),
    [
        ("MapOperation", (lambda e: e["y"] * 2,), {}),
        ("MapOperation", (lambda e: e["z"],), {}),
        ("RandomMapOperation", (lambda e, rng: rng.random() + e["y"],), {}),
        ("RandomMapOperation", (lambda e: e,), {}),
        ("FilterOperation", (lambda e: e["y"] % 2,), {}),
        ("FilterOperation", (lambda e: e["z"],), {}),
        ("BatchOperation", (2,), {}),
        ("BatchOperation", (2, True), {}),
        ("BatchOperation", (3,), {"batch_fn": len}),
        ("BatchOperation", (9, True), {}),
    ],
)
def test_results_match_grain(name, args, kwargs):
    ours, theirs = run(name, *args, **kwargs)
    assert plain(ours) == plain(theirs)


def test_error_of_unequal_structures_matches_grain():
    ours, theirs = run("BatchOperation", 3, rows=[{"x": 1}, {"y": 1}, {"x": 2}])
    assert ours == theirs
    assert ours[0] is TypeError


def test_batch_size_is_checked():
    with pytest.raises(ValueError) as theirs:
        old.BatchOperation(0)
    with pytest.raises(ValueError) as ours:
        operations.BatchOperation(0)
    assert str(ours.value) == str(theirs.value)


def test_deprecation_is_logged_unless_disabled(caplog):
    list(operations.MapOperation(len)(stream(records)))
    assert (
        "MapOperation is deprecated. Use gristmill.python.MapTransform" in caplog.text
    )
    caplog.clear()
    quiet = operations.BatchOperation(2)
    quiet.disable_deprecation_message()
    list(quiet(stream(records)))
    assert not caplog.records


def test_operations_are_not_transforms():
    assert not isinstance(operations.BatchOperation(2), transforms.Transformation)


def test_batch_of_one_is_stacked():
    # Stacking changes the byte order to the machine's; a new axis alone does not.
    rows = [np.arange(3, dtype=">i4")]
    ours, theirs = run("BatchOperation", 1, rows=rows)
    assert plain(ours[0][2]) == plain(theirs[0][2])
