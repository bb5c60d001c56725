"""Checks that clients have pins and rows on the page; `make clients` runs them."""

import numpy as np
import pytest

from clients import client, page
from clients.comparison import difference
from clients.environment import uv_settings
from clients.inside import record

NAMES = client.client_names()


def test_page_shows_the_last_results():
    results = page.load()
    missing = {*NAMES} - {*results}
    assert not missing, f'Run `make clients ONLY="{" ".join(sorted(missing))}"`.'
    text = page.text(results)
    assert page.PAGE.read_text() == text, "Run `python -m clients.page` in tests."


@pytest.mark.parametrize("name", NAMES)
def test_client_has_pins_and_two_programs(name):
    one = client.read(name)
    locked = one.lock.read_text().splitlines()
    assert all("==" in line for line in locked)
    assert {*one.requirements} <= {*locked}
    compile(one.program("gristmill"), name, "exec")
    assert one.drop_in == (one.program("peer") == one.program("gristmill"))


def test_first_difference_of_two_runs_is_found():
    same = (["a: 1", "b: 2"], {"batches": 2})
    assert difference(same, same) is None
    assert "nothing" in difference(([], {}), ([], {}))
    assert "'b: 2', and Gristmill 'b: 3'" in difference(same, (["a: 1", "b: 3"], {}))
    assert "2 values, and Gristmill 1" in difference(same, (["a: 1"], {}))
    assert "'batches': 0" in difference(same, (same[0], {"batches": 0}))
    assert "no batch" in difference((["a: 1"], {"batches": 0}), same)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ([1], (1,)),
        (1, 1.0),
        (0.0, -0.0),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        (np.zeros(3, np.float32), np.zeros(3)),
        (np.zeros((2, 3)), np.zeros((3, 2))),
        (np.arange(9), np.r_[:8, 9]),
    ],
)
def test_lines_of_other_values_differ(one, other):
    assert [*record.lines("x", one)] != [*record.lines("x", other)]


def test_result_of_another_program_is_not_shown(tmp_path, monkeypatch):
    monkeypatch.setattr(client, "HERE", tmp_path)
    (tmp_path / "some").mkdir()
    one = client.Client("some", "Some", "some", "torch", [], changes={"a": "b"})
    (one.folder / "program.py").write_text("    a\na\n")
    one.lock.write_text("some==1\n")
    assert one.program("gristmill") == "    a\nb\n"
    monkeypatch.setattr(page, "client_names", lambda: ["some"])
    monkeypatch.setattr(page, "read", lambda name: one)
    one.result.write_text(f'{{"inputs": "{one.inputs()}"}}')
    assert [*page.load()] == ["some"]
    one.lock.write_text("some==2\n")
    assert not page.load()


def test_uv_looks_where_pip_is_configured_to_look():
    configuration = """\
:env:.find-links='/one https://two'
global.extra-index-url='https://three/simple'
global.find-links='/four'
global.timeout='60'
"""
    assert uv_settings(configuration) == {
        "UV_FIND_LINKS": "/one,https://two",
        "UV_INDEX": "https://three/simple",
        "UV_INDEX_STRATEGY": "unsafe-best-match",
    }
