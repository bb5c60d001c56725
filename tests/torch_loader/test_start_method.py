"""Workers start as torch's do, and see what torch's would see."""

import json
import multiprocessing
import sys
import threading

import pytest
import torch
import torch.utils.data

from faults.scripts import run
from gristmill._torch.workers import start_method
from gristmill.torch import DataLoader
from torch_loader.imported import Imported

pytestmark = pytest.mark.multiprocess

TorchLoader = torch.utils.data.DataLoader
LOADERS = {
    "torch": "from torch.utils.data import DataLoader\n",
    "gristmill": "from gristmill.torch import DataLoader\n",
}


class Method(torch.utils.data.Dataset):
    """The start method that a worker finds."""

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
    """Sets the program's start method until the end of the test."""
    before = multiprocessing.get_start_method(allow_none=True)
    yield lambda name: multiprocessing.set_start_method(name, force=True)
    multiprocessing.set_start_method(before, force=True)


def same_in_both(script, *arguments):
    """What a script prints as JSON, with torch's loader and with ours, if equal."""
    texts = [run(head + script, *arguments) for head in LOADERS.values()]
    torchs, ours = (json.loads(text) for text in texts)
    assert ours == torchs
    return ours


SETTINGS = """
import contextlib, io, json, logging, os, resource, tempfile, types, warnings
import numpy, PIL.ImageFile, torch, torch.serialization

class Safe:
    pass

def settings():
    mask = os.umask(0)
    os.umask(mask)
    return {
        "truncated": PIL.ImageFile.LOAD_TRUNCATED_IMAGES,
        "module": sys.modules["settings_of_mine"].value,
        "safe": Safe in torch.serialization.get_safe_globals(),
        "filters": [str(entry) for entry in warnings.filters[:2]],
        "logging": logging.getLogger("mine").level,
        "grad": torch.is_grad_enabled(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "dtype": str(torch.get_default_dtype()),
        "seterr": numpy.geterr(),
        "umask": mask,
        "nice": os.nice(0) - BEFORE,
        "files": resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        "cwd": os.getcwd(),
        "line": LINES.readline(),
    }

class Probe:
    def __getstate__(self):
        raise AssertionError("pickled")
    def __len__(self):
        return 1
    def __getitem__(self, index):
        print("from a worker", flush=True)
        return json.dumps(settings())

PIL.ImageFile.LOAD_TRUNCATED_IMAGES = True
sys.modules["settings_of_mine"] = types.SimpleNamespace(value=7)
torch.serialization.add_safe_globals([Safe])
warnings.filterwarnings("ignore", "mine")
logging.getLogger("mine").setLevel(7)
torch.use_deterministic_algorithms(True)
torch.set_default_dtype(torch.float64)
numpy.seterr(all="raise")
os.umask(0o027)
BEFORE = os.nice(0)
os.nice(3)
resource.setrlimit(resource.RLIMIT_NOFILE, (200, 4096))
with open(sys.argv[1], "w+") as LINES, tempfile.TemporaryFile("w+") as output:
    LINES.write("first\\nsecond\\n")
    LINES.seek(0)
    LINES.readline()
    with torch.no_grad(), contextlib.redirect_stdout(output):
        [[found]] = DataLoader(Probe(), num_workers=1)
    output.seek(0)
    assert output.read() == "from a worker\\n"
print(found)
"""


def test_what_the_program_has_set_reaches_its_workers(tmp_path):
    found = same_in_both(SETTINGS, tmp_path / "lines")
    assert found["truncated"] and found["safe"] and found["deterministic"]
    assert (found["module"], found["umask"], found["nice"]) == (7, 0o027, 3)
    assert (found["line"], found["grad"], found["files"]) == ("second\n", False, 200)


PROCESSES = """
import json, multiprocessing, time
import torch

class Probe:
    def __len__(self):
        return 2
    def __getitem__(self, index):
        current = multiprocessing.current_process()
        parent = multiprocessing.parent_process()
        try:
            multiprocessing.Process(target=print).start()
        except AssertionError as error:
            refusal = str(error)
        found = {
            "name": current.name,
            "daemon": current.daemon,
            "parent": [parent.pid == int(sys.argv[1]), parent.name],
            "parent lives": parent.is_alive(),
            "children": len(multiprocessing.active_children()),
            "refusal": refusal,
        }
        current._config["daemon"] = False
        child = multiprocessing.get_context("fork").Process(
            target=time.sleep, args=(1000,)
        )
        child.start()
        child.terminate()
        child.join()
        # Torch's worker lets it exit with 0.
        return json.dumps({**found, "child has ended": child.exitcode in (0, -15)})

sys.argv.append(str(os.getpid()))
loader = DataLoader(Probe(), num_workers=2, **json.loads(sys.argv.pop(1)))
batches = iter(loader)
found = [json.loads(text) for [text] in batches]
"""
ONE_PROCESS = {
    "daemon": True,
    "parent": [True, "MainProcess"],
    "parent lives": True,
    "children": 0,
    "refusal": "daemonic processes are not allowed to have children",
    "child has ended": True,
}


def test_a_worker_is_a_process_of_multiprocessing():
    script = f"""{PROCESSES}
batches = iter(loader)
names = sorted(child.name for child in multiprocessing.active_children())
list(batches)
print(json.dumps({{"found": found, "names": names}}))
"""
    seen = same_in_both(script, "{}")
    assert [one.pop("name") for one in seen["found"]] == ["Process-1", "Process-2"]
    assert seen["names"] == ["Process-3", "Process-4"]
    for one in seen["found"]:
        assert one == ONE_PROCESS


def test_a_worker_of_the_launcher_looks_like_one():
    options = json.dumps({"multiprocessing_context": "launcher"})
    found = json.loads(
        run(LOADERS["gristmill"] + PROCESSES + "print(json.dumps(found))", options)
    )
    for number, one in enumerate(found):
        assert one == {
            **ONE_PROCESS,
            "name": f"GristmillWorker-{number}",
        }


@pytest.mark.parametrize("context", [None, "launcher"])
def test_an_exit_of_a_worker_has_its_code_and_no_traceback(context):
    text = run(
        f"""{LOADERS["gristmill"]}
import contextlib
import tempfile

class Exits:
    def __len__(self):
        return 1
    def __getitem__(self, index):
        sys.exit(3)

with tempfile.TemporaryFile() as errors:
    kept = os.dup(2)
    os.dup2(errors.fileno(), 2)
    loader = DataLoader(Exits(), num_workers=1, multiprocessing_context={context!r})
    error = expect(g.errors.WorkerDied, lambda: next(iter(loader)), 40)
    os.dup2(kept, 2)
    errors.seek(0)
    print(errors.read().decode())
assert "exit code 3" in str(error.__cause__)
"""
    )
    assert "Traceback" not in text


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_workers_start_as_the_program_says(method, start_method_is):
    start_method_is(method)
    for kind in (TorchLoader, DataLoader):
        assert list(kind(Method(), None, num_workers=1)) == [method, method]


def test_a_fork_pickles_nothing(start_method_is):
    start_method_is("fork")
    assert list(DataLoader(Unpicklable(), None, num_workers=2)) == [0, 1]


def test_the_launcher_pickles_and_says_what_cannot_be():
    loader = DataLoader(
        Unpicklable(), None, num_workers=1, multiprocessing_context="launcher"
    )
    with pytest.raises(AssertionError, match="pickled"):
        iter(loader)


@pytest.mark.claim(
    'multiprocessing_context="launcher" is one more way to start workers: forks of a '
    "clean process that has imported torch and nothing of your program."
)
def test_workers_of_the_launcher_see_what_is_sent_and_nothing_that_was_set():
    run(
        """
import multiprocessing, types
import torch
from gristmill.torch import DataLoader

class Main:
    closed = 3
def function(x):
    return x + Main.closed
class Probe:
    def __init__(self, add):
        self.add = add
        self.parent = os.getpid()
    def __len__(self):
        return 1
    def __getitem__(self, index):
        return [
            self.add(index),
            torch.are_deterministic_algorithms_enabled(),
            "settings_of_mine" in sys.modules,
            os.getppid() == self.parent,
        ]

sys.modules["settings_of_mine"] = types.SimpleNamespace(value=7)
torch.use_deterministic_algorithms(True)
for add in (function, lambda x: function(x)):
    iterator = iter(
        DataLoader(Probe(add), None, num_workers=1, multiprocessing_context="launcher")
    )
    assert multiprocessing.active_children() == []
    assert next(iterator) == [3, False, False, False]
"""
    )


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_a_worker_that_is_spawned_imports_what_it_runs(method):
    [imported] = DataLoader(
        Imported(), None, num_workers=1, multiprocessing_context=method
    )
    assert "gristmill._engine.worker" in imported
    assert not {"gristmill.loader", "gristmill.samplers"} & {*imported}


def test_the_launchers_context_is_one_for_every_loader():
    ours = DataLoader(Method(), None, num_workers=1, multiprocessing_context="launcher")
    context = ours.multiprocessing_context
    assert context.get_start_method() == "launcher"
    # Trainers make loaders anew with what they find, of torch's class, too.
    again = DataLoader(Method(), None, num_workers=1, multiprocessing_context=context)
    theirs = TorchLoader(Method(), None, num_workers=1, multiprocessing_context=context)
    assert list(again) == ["fork"] * 2 if sys.version_info < (3, 14) else list(again)
    assert list(theirs) == ["spawn"] * 2
    ours.multiprocessing_context = "fork"
    ours.multiprocessing_context = "launcher"
    assert isinstance(ours.multiprocessing_context, start_method.LauncherContext)


@pytest.mark.parametrize("context", [None, "launcher"])
def test_workers_outlive_the_thread_that_made_their_loader(context):
    loader = DataLoader(range(100), num_workers=2, multiprocessing_context=context)
    made = []
    thread = threading.Thread(target=lambda: made.append(iter(loader)))
    thread.start()
    thread.join()
    assert [batch.item() for batch in made[0]] == list(range(100))


def test_an_import_starts_no_process_and_no_thread():
    run(
        """
before = len(os.listdir("/proc/self/fd"))
import torch
threads = len(os.listdir("/proc/self/task"))
import gristmill.torch
assert len(os.listdir("/proc/self/task")) == threads
assert descendants(os.getpid()) == []
assert len(os.listdir("/proc/self/fd")) == before
"""
    )


JAX = """
import warnings
import jax
from gristmill.torch import DataLoader

class Parent:
    def __len__(self):
        return 1
    def __getitem__(self, index):
        return os.getppid()

jax.numpy.zeros(1).block_until_ready()
"""


@pytest.mark.claim(
    "A program that has initialised JAX gets the launcher where torch would fork, and "
    "one warning: such forks may wait for ever."
)
def test_a_program_that_has_initialised_jax_gets_the_launcher_and_one_warning():
    run(
        JAX
        + """
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    for _ in range(2):
        [parent] = DataLoader(Parent(), num_workers=1)
        assert parent.item() != os.getpid()
[warning] = told
assert "JAX is initialised" in str(warning.message)
assert warning.filename == "<string>", warning.filename
"""
    )


@pytest.mark.claim(
    "A program that has initialised JAX gets the launcher where torch would fork, and "
    "one warning: such forks may wait for ever."
)
def test_a_fork_of_a_program_with_jax_can_be_asked_for():
    run(
        JAX
        + """
warnings.simplefilter("ignore", RuntimeWarning)  # JAX's own, of the fork.
loader = DataLoader(Parent(), num_workers=1, multiprocessing_context="fork")
assert [parent.item() for parent in loader] == [os.getpid()]
"""
    )


@pytest.mark.claim(
    "A program that has initialised JAX gets the launcher where torch would fork, and "
    "one warning: such forks may wait for ever."
)
def test_a_program_with_jax_that_cannot_be_pickled_is_forked():
    run(
        JAX
        + """
warnings.simplefilter("ignore")
import threading
lock = threading.Lock()

class Locked(Parent):
    def __getitem__(self, index):
        with lock:
            return os.getppid()

[parent] = DataLoader(Locked(), num_workers=1)
assert parent.item() == os.getpid()
"""
    )


CLOSED = """
import gristmill
import gristmill.torch
import numpy as np

def torchs(context=None):
    loader = gristmill.torch.DataLoader(
        range(10), num_workers=2, multiprocessing_context=context
    )
    return [batch.item() for batch in loader]

def grains():
    sampler = gristmill.IndexSampler(10, num_epochs=1)
    return sorted(
        int(element)
        for element in gristmill.DataLoader(
            data_source=np.arange(10), sampler=sampler, worker_count=2
        )
    )

def all_come():
    for read in (torchs, lambda: torchs("launcher"), grains):
        assert read() == list(range(10))
"""


def test_workers_start_after_all_descriptors_were_closed():
    run(CLOSED + "os.closerange(3, 1024)\nall_come()\n")


def test_workers_start_in_a_daemon():
    """As `daemon.DaemonContext` makes one: two forks, a session, no descriptors."""
    run(
        CLOSED
        + """
all_come()
read, write = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork():
        os._exit(0)
    os.dup2(write, 0)
    os.closerange(3, 1024)
    try:
        all_come()
        os.write(0, b"done")
    finally:
        os._exit(0)
os.close(write)
with open(read) as end:
    assert end.read() == "done"
"""
    )
