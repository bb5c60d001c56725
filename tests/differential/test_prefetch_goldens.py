"""mp_prefetch equals Grain's, element by element and state by state."""

import gzip
import json

import pytest

import gristmill
from differential.generate_prefetch_goldens import PATH, prefetched, run

GOLDENS = json.loads(gzip.decompress(PATH.read_bytes()))["chains"]
OPTIONS = gristmill.MultiprocessingOptions


@pytest.mark.parametrize("golden", GOLDENS, ids=lambda golden: golden["seed"])
def test_elements_and_states_equal_grains(golden):
    iterator = iter(prefetched(gristmill, golden))
    assert run(iterator) == {
        name: golden[name] for name in ("elements", "states", "end")
    }
    iterator.close()


@pytest.mark.parametrize("golden", GOLDENS[::4], ids=lambda golden: golden["seed"])
@pytest.mark.parametrize("workers", [0, 2])
def test_grains_states_resume_with_any_worker_count(golden, workers):
    streams = golden["workers"]
    iterator = iter(
        prefetched(gristmill, {**golden, "workers": workers}, streams=streams)
    )
    place = len(golden["elements"]) // 2
    iterator.set_state(golden["states"][place])
    rest = run(iterator, len(golden["elements"]) - place)
    assert rest["elements"] == golden["elements"][place:]
    assert rest["states"] == golden["states"][place : place + len(rest["states"])]
    iterator.close()
