"""Checks that clients have pins and rows on the page; `make clients` runs them."""

import numpy as np
import pytest

from clients import client, environment, page, run
from clients.comparison import difference
from clients.environment import uv_settings
from clients.inside import record

NAMES = client.client_names()
NOT_RUN = "not run: Its packages were not installed: no network"


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


def raise_not_installed(*_):
    raise environment.NotInstalled("no network")


def raise_interrupt(*_):
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("function", "replacement", "lines"),
    [
        (
            "comparison.compare",
            raise_not_installed,
            [
                f"Lightning {{lightning}}: {NOT_RUN}",
                f"timm {{timm}}: {NOT_RUN}",
            ],
        ),
        (
            "comparison.compare",
            raise_interrupt,
            ["Lightning {lightning}: interrupted."],
        ),
        ("environment.build_wheel", raise_not_installed, ["no network"]),
    ],
)
def test_error_outside_programs_keeps_results(
    function, replacement, lines, monkeypatch, tmp_path, capsys
):
    clients = [client.read(name) for name in ("lightning", "timm")]
    versions = {one.name: one.version() for one in clients}
    results = [one.result.read_text() for one in clients]
    monkeypatch.setattr(environment, "build_wheel", lambda folder: None)
    monkeypatch.setattr(f"clients.{function}", replacement)
    assert run.compare_all(clients, tmp_path) == 1
    assert capsys.readouterr().out.splitlines() == [
        *(line.format(**versions) for line in lines),
        "0 of 2 clients are equal.",
        'To run the others again: make clients ONLY="lightning timm"',
    ]
    assert [one.result.read_text() for one in clients] == results


def test_equal_client_is_not_to_be_run_again(monkeypatch, tmp_path, capsys):
    clients = [client.read(name) for name in ("lightning", "timm")]
    outcomes = {"lightning": "equal", "timm": "failed"}
    monkeypatch.setattr(environment, "build_wheel", lambda folder: None)
    monkeypatch.setattr(run, "compare", lambda one, *_: outcomes[one.name])
    assert run.compare_all(clients, tmp_path) == 1
    assert capsys.readouterr().out.splitlines() == [
        "1 of 2 clients are equal.",
        'To run the others again: make clients ONLY="timm"',
    ]


def test_interrupted_step_is_done_again(tmp_path):
    path = tmp_path / "step"
    with environment.done_once(path, b"old") as pending:
        assert pending
    with pytest.raises(KeyboardInterrupt), environment.done_once(path, b"new"):
        raise KeyboardInterrupt
    for expected in (True, False):
        with environment.done_once(path, b"old") as pending:
            assert pending is expected


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
