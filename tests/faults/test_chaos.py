"""Many loaders at once, bad moments and odd environments: success or a clear error."""

import subprocess

import pytest

from faults.scripts import command, environment, run

pytestmark = pytest.mark.multiprocess


def test_uproar():
    run("faults/chaos/uproar", 5, 1)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(2, 6))
def test_long_uproar(seed):
    run("faults/chaos/uproar", 60, 10 * seed, deadline_s=120)


def test_fork_between_iterating_threads():
    run("faults/chaos/forks_between_threads")


@pytest.mark.parametrize("what", ["iterating", "starting"])
def test_exit_with_busy_daemon_threads(what):
    run("faults/chaos/exit_with_daemon_threads", what)


@pytest.mark.parametrize("registered", ["before", "after"])
def test_loader_at_exit(registered):
    out = run("faults/chaos/loader_at_exit", registered)
    assert out == "done\n"


def test_iterators_collected_at_interpreter_exit():
    run("faults/chaos/collected_at_the_very_end")


def test_64_workers():
    run("faults/chaos/many_workers")


def test_closed_standard_streams_do_not_matter(tmp_path):
    run("faults/chaos/closed_standard_streams", tmp_path / "done")
    assert (tmp_path / "done").exists()


def test_descriptors_closed_by_user_do_not_hang():
    run("faults/chaos/closed_descriptors")


FLAGS = ["-I", "-OO", "-X dev", "-E -s -B", "-W error", "-X utf8=0 -b"]


@pytest.mark.parametrize("flags", FLAGS)
def test_interpreter_options(flags):
    paths = environment()["PYTHONPATH"].split(":")
    program = "faults/chaos/under_interpreter_options"
    done = subprocess.run(
        command(program, *paths, options=flags.split()),
        env=environment(), capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")


def test_odd_paths_arguments_and_environments():
    run("faults/chaos/odd_environment")


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        ("no name of the interpreter", "sys.executable is empty"),
        ("no interpreter", "sys.executable is empty"),
        ("another interpreter", "/no/such: No such file or directory"),
        ("too long an environment", "too long"),
        ("no fork", "Resource temporarily unavailable"),
    ],
)
def test_impossible_start_names_the_reason(tmp_path, spoil, words):
    (tmp_path / "sitecustomize.py").write_text(
        "import os, sys\n"
        "def fail():\n    raise BlockingIOError(11, os.strerror(11))\n"
        "if 'gristmill._workers.launcher' in ' '.join(sys.orig_argv): os.fork = fail\n"
    )
    run(
        "faults/chaos/impossible_start",
        spoil,
        tmp_path,
        words,
    )


def test_too_few_descriptors_raise_without_a_hang():
    out = run("faults/chaos/few_descriptors")
    assert out == ""


def test_too_little_address_space_raises_without_a_hang():
    run("faults/chaos/little_address_space")
