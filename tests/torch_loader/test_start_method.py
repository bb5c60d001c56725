"""Tests that workers start like torch's and see the same state."""

import json
import multiprocessing
import sys
import threading

import pytest
import torch
import torch.utils.data

from faults import scripts
from faults.prepared import run
from gristmill._torch.workers import start_method
from gristmill.torch import DataLoader
from torch_loader.imported import Imported

pytestmark = pytest.mark.multiprocess

TorchLoader = torch.utils.data.DataLoader


class Method(torch.utils.data.Dataset):
    """Samples are the start method in the worker."""

    def __len__(self):
        return 2

    def __getitem__(self, index):
        return multiprocessing.get_start_method()


class Unpicklable(Method):
    def __getstate__(self):
        raise AssertionError("pickled")

    def __getitem__(self, index):
        return index


@pytest.fixture
def start_method_is():
    """Return a function that sets the start method until the end of the test."""
    before = multiprocessing.get_start_method(allow_none=True)
    yield lambda name: multiprocessing.set_start_method(name, force=True)
    multiprocessing.set_start_method(before, force=True)


def same_in_both(program, *arguments):
    """Run a program with torch's loader and ours; return its JSON if both are equal."""
    texts = [
        run(program, module, *arguments)
        for module in ("torch.utils.data", "gristmill.torch")
    ]
    torchs, ours = (json.loads(text) for text in texts)
    assert ours == torchs
    return ours


def test_settings_of_program_in_workers_match_torch(tmp_path):
    found = same_in_both("torch_loader/start_method/settings", tmp_path / "lines")
    assert found["truncated"] and found["safe"] and found["deterministic"]
    assert (found["module"], found["umask"], found["nice"]) == (7, 0o027, 3)
    assert (found["line"], found["grad"], found["files"]) == ("second\n", False, 200)


ONE_PROCESS = {
    "daemon": True,
    "parent": [True, "MainProcess"],
    "parent lives": True,
    "children": 0,
    "refusal": "daemonic processes are not allowed to have children",
    "child has ended": True,
}


def test_worker_process_attributes_match_torch():
    seen = same_in_both("torch_loader/start_method/processes", "{}")
    assert [one.pop("name") for one in seen["found"]] == ["Process-1", "Process-2"]
    assert seen["names"] == ["Process-3", "Process-4"]
    for one in seen["found"]:
        assert one == ONE_PROCESS


def test_launcher_worker_has_process_attributes():
    options = json.dumps({"multiprocessing_context": "launcher"})
    text = run("torch_loader/start_method/processes", "gristmill.torch", options)
    for number, one in enumerate(json.loads(text)["found"]):
        assert one == {
            **ONE_PROCESS,
            "name": f"GristmillWorker-{number}",
        }


@pytest.mark.parametrize("context", [None, "launcher"])
def test_exit_of_worker_keeps_code_without_traceback(context):
    text = run("torch_loader/start_method/exit_of_a_worker", context or "")
    assert "Traceback" not in text


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_workers_use_start_method_of_program(method, start_method_is):
    start_method_is(method)
    for kind in (TorchLoader, DataLoader):
        assert list(kind(Method(), None, num_workers=1)) == [method, method]


def test_fork_pickles_nothing(start_method_is):
    start_method_is("fork")
    assert list(DataLoader(Unpicklable(), None, num_workers=2)) == [0, 1]


def test_launcher_raises_pickling_error():
    loader = DataLoader(
        Unpicklable(), None, num_workers=1, multiprocessing_context="launcher"
    )
    with pytest.raises(AssertionError, match="pickled"):
        iter(loader)


def test_launcher_workers_see_program_and_settings():
    run("torch_loader/start_method/launcher_sees_what_is_sent")


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_spawned_worker_imports_only_what_it_runs(method):
    [(imported, frozen)] = DataLoader(
        Imported(), None, num_workers=1, multiprocessing_context=method
    )
    assert "gristmill._engine.worker" in imported
    assert not {"gristmill.loader", "gristmill.samplers"} & {*imported}
    # Objects of torch, which a full collection would have to traverse.
    assert frozen > 10_000


def test_launcher_context_works_in_other_loaders():
    ours = DataLoader(Method(), None, num_workers=1, multiprocessing_context="launcher")
    context = ours.multiprocessing_context
    assert context.get_start_method() == "launcher"
    # Trainers rebuild loaders, also of torch's class, with the found attributes.
    again = DataLoader(Method(), None, num_workers=1, multiprocessing_context=context)
    theirs = TorchLoader(Method(), None, num_workers=1, multiprocessing_context=context)
    assert list(again) == ["fork"] * 2 if sys.version_info < (3, 14) else list(again)
    assert list(theirs) == ["spawn"] * 2
    ours.multiprocessing_context = "fork"
    ours.multiprocessing_context = "launcher"
    assert isinstance(ours.multiprocessing_context, start_method.LauncherContext)


@pytest.mark.parametrize("context", [None, "launcher"])
def test_workers_outlive_thread_that_started_them(context):
    loader = DataLoader(range(100), num_workers=2, multiprocessing_context=context)
    made = []
    thread = threading.Thread(target=lambda: made.append(iter(loader)))
    thread.start()
    thread.join()
    assert [batch.item() for batch in made[0]] == list(range(100))


def test_import_starts_no_process_or_thread():
    scripts.run("torch_loader/start_method/import_starts_nothing")


def test_program_with_jax_uses_launcher_and_warns_once():
    run("torch_loader/start_method/launcher_after_jax")


def test_fork_context_with_jax_forks():
    run("torch_loader/start_method/fork_after_jax")


def test_unpicklable_program_with_jax_is_forked():
    run("torch_loader/start_method/unpicklable_after_jax")


def test_workers_start_after_descriptors_were_closed():
    run("torch_loader/start_method/closed_descriptors")


def test_workers_start_in_a_daemon():
    run("torch_loader/start_method/daemon")
