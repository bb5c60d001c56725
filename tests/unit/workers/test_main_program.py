"""Tests that the top level of a guarded script runs once more for all workers."""

import json
import shutil
import subprocess
import sys
import types

import pytest

from faults.scripts import DEADLINE_S, PROGRAMS, environment, run
from gristmill._workers import main_module

FOLDER = PROGRAMS / "main_program"
TEXT = (FOLDER / "top_level.py").read_text()
ITERATES = f"line {TEXT[: TEXT.index('list(gristmill')].count(chr(10)) + 1}"
GUARD = 'if __name__ == "__main__":'


def outcome(script, *arguments):
    """Run a script from its file, like a user, and return the completed process."""
    return subprocess.run(
        [sys.executable, script, *arguments],
        env=environment(), capture_output=True, text=True, timeout=DEADLINE_S,
        start_new_session=True,
    )  # fmt: skip


def printed(script, *arguments):
    done = outcome(script, *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


# Which programs run again


@pytest.fixture
def described(monkeypatch, tmp_path):
    """Return a function that describes a main program with a text and attributes."""

    def describe(text=None, **attributes):
        main = types.ModuleType("__main__")
        if text is not None:
            main.__file__ = str(tmp_path / "train.py")
            (tmp_path / "train.py").write_bytes(text.encode())
        vars(main).update(attributes)
        monkeypatch.setitem(sys.modules, "__main__", main)
        main_module._guarded_lines.cache_clear()
        return main_module.description()

    return describe


@pytest.mark.parametrize(
    "text",
    [
        f"{GUARD}\n    main()",
        "if '__main__' == __name__: main()",
        'if __name__ == "__main__" and True:\n    main()',
        f"try:\n    {GUARD}\n        main()\nfinally:\n    pass",
        f"if True:\n    pass\nelse:\n    {GUARD}\n        main()",
        f"{GUARD}\n    main()\nelse:\n    pass",
        f"# coding: utf-8\n{GUARD} main('é')",
    ],
)
def test_program_with_guard_runs_again(described, tmp_path, text):
    description, others = main_module.split_description(described(text))
    assert json.loads(description)[:2] == [
        "init_main_from_path",
        f"{tmp_path}/train.py",
    ]
    assert others == []


@pytest.mark.parametrize(
    "text",
    [
        "main()",
        'if __name__ != "__main__":\n    raise SystemExit',
        'if not __name__ == "__main__":\n    raise SystemExit',
        'if __name__ in ("__main__", "__mp_main__"):\n    main()',
        'if __name__ == "__main__" or True:\n    main()',
        f"def f():\n    {GUARD}\n        main()",
        f"class F:\n    {GUARD}\n        main()",
        f"# {GUARD}",
        f"'''\n{GUARD}\n    main()\n'''",
        f"{GUARD}\nmain(",
        f"{GUARD} main('\0')",
        None,
    ],
)
def test_program_without_guard_does_not_run_again(described, text):
    assert described(text) == ()


def test_runner_or_package_does_not_run_again(described, tmp_path):
    text = f"{GUARD}\n    main()"
    for name in ("pytest", "default_worker.py", "ipykernel_launcher.py", "ipython"):
        (tmp_path / name).write_text(text)
        assert described(text, __file__=str(tmp_path / name)) == ()
    for name in ("__main__", "package.__main__"):
        assert described(text, __spec__=types.SimpleNamespace(name=name)) == ()
    assert described(text, __file__=str(tmp_path / "archive.zip" / "app.py")) == ()


def test_module_runs_again_by_name(described):
    spec = types.SimpleNamespace(name="package.train")
    text, _ = main_module.split_description(
        described(f"{GUARD}\n    main()", __spec__=spec)
    )
    assert json.loads(text)[:2] == ["init_main_from_name", "package.train"]


def test_long_and_unusual_arguments_are_passed(described, monkeypatch):
    arguments = ["train.py", "\udce9" * 50_000, "é\n", "--flag"]
    monkeypatch.setattr(sys, "argv", arguments)
    description = described(f"{GUARD}\n    main()")
    assert max(map(len, description)) < 100_000
    assert all(part.isascii() for part in description)
    text, others = main_module.split_description(["torch", *description, "jax"])
    assert json.loads(text)[2] == arguments
    assert others == ["torch", "jax"]


# Once for all workers


@pytest.mark.multiprocess
@pytest.mark.claim(
    "Each worker runs the top level of the main script again, in every epoch"
)
def test_top_level_runs_once_for_all_workers(tmp_path):
    arguments = ("does nothing", tmp_path / "runs", b"\xe9" * 70_000)
    assert printed(FOLDER / "top_level.py", *arguments) == "raise\nraise\n1\n"


@pytest.mark.multiprocess
@pytest.mark.claim(
    "If a script seeds random or NumPy at its top level, all workers draw the "
    "same numbers, in every epoch"
)
def test_workers_do_not_share_seeds_of_top_level(tmp_path):
    out = printed(FOLDER / "top_level.py", "draws", tmp_path / "runs")
    numbers = out.split()[:-1]
    # Two numbers for each element of both loaders.
    assert len({*numbers}) == len(numbers) == 32


@pytest.mark.multiprocess
def test_top_level_with_threads_runs_in_each_worker(tmp_path):
    done = outcome(FOLDER / "top_level.py", "threads", tmp_path / "runs")
    # It runs in the launcher, and in two workers of each of two loaders.
    assert done.stdout == "raise\nraise\n5\n", done.stderr
    assert done.stderr.count("the top level of the main program starts 1 thread") == 1


@pytest.mark.multiprocess
def test_main_module_runs_again(tmp_path):
    done = outcome("-m", "programs.main_program.top_level", "", tmp_path / "runs")
    assert done.stdout == "raise\nraise\n1\n", done.stderr


@pytest.mark.multiprocess
def test_deleted_script_sends_its_settings(tmp_path):
    script = shutil.copy(FOLDER / "top_level.py", tmp_path)
    assert printed(script, "deletes", tmp_path / "runs") == "raise\nraise\n0\n"


@pytest.mark.multiprocess
def test_script_iterating_outside_guard_does_not_run_again(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(TEXT.replace(GUARD, f"print(found())\n{GUARD}"))
    assert printed(script, "", tmp_path / "runs") == "raise\nraise\nraise\n0\n"


@pytest.mark.multiprocess
def test_drop_in_script_runs_again(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(TEXT.replace("gristmill", "grain"))
    done = outcome("-m", "gristmill.drop_in", script, "", tmp_path / "runs")
    assert done.stdout == "raise\nraise\n1\n", done.stderr


@pytest.mark.multiprocess
def test_workers_reopen_files_opened_by_top_level():
    printed(FOLDER / "imports_opened.py")


@pytest.mark.multiprocess
def test_signal_handlers_of_top_level_do_not_end_workers(tmp_path):
    out = printed(FOLDER / "top_level.py", "signals", tmp_path / "runs")
    assert out == "raise\nraise\n1\n"


# Top levels that cannot run again


@pytest.mark.multiprocess
@pytest.mark.parametrize(
    ("way", "expected"),
    [
        ("raises", ["KeyError: 'mine'", 'top_level.py", line']),
        ("exits", ["SystemExit: usage", 'top_level.py", line']),
        ("iterates", ["__mp_main__", f"{ITERATES}) iterates a loader with workers"]),
    ],
)
def test_error_of_top_level_in_workers_is_reported(tmp_path, way, expected):
    done = outcome(FOLDER / "top_level.py", way, tmp_path / "runs")
    assert done.returncode == 1
    assert "WorkerDied: Worker processes cannot start" in done.stderr
    assert f"Workers run the top level of {FOLDER}/top_level.py again" in done.stderr
    for text in expected:
        assert text in done.stderr
    assert len((tmp_path / "runs").read_text().split()) == 1


@pytest.mark.multiprocess
def test_top_level_that_exits_is_a_failure(tmp_path):
    done = outcome(FOLDER / "top_level.py", "ends", tmp_path / "runs")
    assert "ended 3 times before a worker had started" in done.stderr


@pytest.mark.multiprocess
def test_loader_closes_while_top_level_runs(tmp_path):
    printed(FOLDER / "top_level.py", "never ends", tmp_path / "runs")


# Settings in workers


# Settings that change results of code, or whether it fails.
COMPUTING = {
    "digits": 5000,
    "errors": {"divide": "raise", "over": "warn", "under": "ignore", "invalid": "warn"},
    "filter": ["error", "UserWarning"],
    "key": [0, 0, 0, 0],
    "level": 10,
    "ones": "float64",
    "pixels": 7,
    "precision": 5,
    "promotion": "raise",
    "recursion": 3456,
    "root level": 20,
    "truncated": True,
}


@pytest.mark.slow
@pytest.mark.multiprocess
def test_settings_of_top_level_in_workers_match_grain():
    pytest.importorskip("grain")
    theirs = json.loads(printed(FOLDER / "settings.py", "grain", "1"))
    ours = json.loads(printed(FOLDER / "settings.py", "gristmill", "1"))
    assert ours == theirs
    assert ours.items() >= COMPUTING.items()
    # Functions are sent with the globals set since then; modules are not.
    assert (ours["sent"], ours["in the module"]) == ("later", "top")
    assert ours["patched"] and ours["module"]


@pytest.mark.slow
@pytest.mark.multiprocess
@pytest.mark.claim(
    "Workers of a notebook do not have the library settings of the notebook"
)
def test_settings_are_sent_if_program_cannot_run_again():
    found = json.loads(run("main_program/settings", "gristmill", "1"))
    assert found.items() >= COMPUTING.items()
    assert found["environment"] == ["1", "1"]


@pytest.mark.multiprocess
@pytest.mark.claim(
    "In workers, classes of __main__ that are registered as JAX pytrees are "
    "leaves, and their instances cannot be sent"
)
@pytest.mark.parametrize("runs_again", [True, False])
def test_jax_pytree_classes_are_pytrees_in_workers(runs_again):
    pytest.importorskip("jax")
    program = "main_program/pytrees"
    found = printed(PROGRAMS / f"{program}.py", "1") if runs_again else run(program, 1)
    assert found == "[0, 1] [[0, 0], [1, 1]] a\n[2, 3] [[2, 2], [3, 3]] a\n"
