"""Small outputs that a worker computes together match those computed one by one."""

import itertools
import json

import pytest

import gristmill


class RefuseEveryTenth(gristmill.MapTransform):
    def map(self, number):
        if number % 10 == 5:
            raise ValueError(f"no {number}")
        return number, "an element"


def outcomes(workers):
    """Yield each element or error text, and the position after it."""
    loader = gristmill.DataLoader(
        data_source=range(50),
        sampler=gristmill.IndexSampler(50, shuffle=True, seed=3, num_epochs=1),
        operations=[RefuseEveryTenth()],
        worker_count=workers,
        streams=2,
    )
    iterator = iter(loader)
    for _ in itertools.count():
        try:
            found = next(iterator)
        except ValueError as error:
            found = str(error)
        except StopIteration:
            return
        yield found, json.loads(iterator.get_state())["last_seen_indices"]


@pytest.mark.multiprocess
def test_failing_element_of_a_run_fails_alone():
    here, there = list(outcomes(0)), list(outcomes(2))
    assert there == here
    errors = [found for found, _ in here if isinstance(found, str)]
    assert sorted(errors) == ["no 15", "no 25", "no 35", "no 45", "no 5"]
