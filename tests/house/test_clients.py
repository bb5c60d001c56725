"""Checks that clients have pins and rows on the page; `make clients` runs them."""

import pytest

from clients import client, page
from clients.comparison import difference

NAMES = client.client_names()


def test_page_shows_the_last_results():
    results = page.load()
    assert sorted(results) == NAMES, "Run `make clients`."
    text = page.text(results)
    assert page.PAGE.read_text() == text, "Run `python -m clients.page` in tests."


@pytest.mark.parametrize("name", NAMES)
def test_client_has_pins_and_two_programs(name):
    one = client.read(name)
    locked = one.lock.read_text().splitlines()
    assert all("==" in line for line in locked)
    assert {*one.requirements} <= {*locked}
    assert page.load()[name]["version"] == one.version(), f"Run {name} again."
    compile(one.program("gristmill"), name, "exec")
    assert one.drop_in == (one.program("peer") == one.program("gristmill"))


def test_first_difference_of_two_runs_is_found():
    same = (["a: 1", "b: 2"], {"batches": 2})
    assert difference(same, same) is None
    assert "nothing" in difference(([], {}), ([], {}))
    assert "'b: 2', and Gristmill 'b: 3'" in difference(same, (["a: 1", "b: 3"], {}))
    assert "2 values, and Gristmill 1" in difference(same, (["a: 1"], {}))
    assert "'batches': 0" in difference(same, (same[0], {"batches": 0}))
