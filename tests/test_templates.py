"""A program that several crews run, one after another, is loaded once for them."""

import os
import select
import socket

import pytest

from faults.scripts import run
from gristmill import _templates
from gristmill._processes import ENLIST, Message
from gristmill._setup import Setup
from gristmill._templates import Templates

pytestmark = pytest.mark.multiprocess

SCRIPT = """
import importlib
import torch
from torch.utils.data import get_worker_info
from gristmill.torch import DataLoader

def parent_of(pid):
    with open(f"/proc/{pid}/stat") as file:
        return int(file.read().rpartition(")")[2].split()[1])

class Who:
    # Whose child the worker's zygote is: the launcher's or a template's.
    size = 8
    value = 0
    def __len__(self):
        return self.size
    def __getitem__(self, index):
        fds = len(os.listdir("/proc/self/fd"))
        return parent_of(os.getppid()), self.value, fds, get_worker_info().seed

class Shown:
    # What one epoch gives.
    def __init__(self, loader):
        rows = [row for batch in loader for row in zip(*(c.tolist() for c in batch))]
        parents, values, fds, self.seeds = zip(*rows)
        (self.parent,), (self.value,) = set(parents), set(values)
        self.fds = max(fds)
        self.by_template = parent_of(self.parent) != os.getpid()

def await_only_template():
    for _ in wait_until("all but the launcher and the template to have ended"):
        if len(descendants(os.getpid())) == 2:
            return

def make(dataset=None, **options):
    return DataLoader(dataset or Who(), 2, num_workers=2, **options)
"""


def script(text, *arguments):
    run(SCRIPT + text, *arguments)


def test_the_second_epoch_and_all_later_ones_share_a_template():
    script(
        """
loader = make()
epochs = [Shown(loader) for _ in range(5)]
assert [epoch.by_template for epoch in epochs] == [False, True, True, True, True]
assert len({epoch.parent for epoch in epochs[1:]}) == 1
assert len({epoch.fds for epoch in epochs}) == 1
again = Shown(make())  # Another loader of the same program.
assert again.parent == epochs[1].parent
"""
    )


def test_each_epoch_is_seeded_anew_as_torchs():
    script(
        """
found = []
for kind in (DataLoader, torch.utils.data.DataLoader):
    torch.manual_seed(3)
    loader = kind(Who(), 2, num_workers=2)
    found.append([sorted({s for b in loader for s in b[3].tolist()}) for _ in range(4)])
assert found[0] == found[1]
assert len({tuple(seeds) for seeds in found[0]}) == 4
"""
    )


def test_a_changed_dataset_or_environment_is_seen():
    script(
        """
dataset = Who()
loader = make(dataset)
for value in (0, 0, 0, 7, 7, 8):
    dataset.value = value
    assert Shown(loader).value == value
class Environment(Who):
    def __getitem__(self, index):
        self.value = int(os.environ["VALUE"])
        return super().__getitem__(index)
loader = make(Environment())
for value in (1, 1, 1, 2, 2):
    os.environ["VALUE"] = str(value)
    assert Shown(loader).value == value
"""
    )


def test_an_edited_module_is_imported_anew(tmp_path):
    (tmp_path / "owned.py").write_text("VALUE = 1\n")
    script(
        f"""
sys.path.insert(0, {str(tmp_path)!r})
import owned

class Owned(Who):
    def __getitem__(self, index):
        self.value = sys.modules["owned"].VALUE
        return super().__getitem__(index)
    def __setstate__(self, state):
        import owned

    def __getstate__(self):
        return {{"module": owned.__name__}}

loader = make(Owned())
assert [Shown(loader).value for _ in range(3)] == [1, 1, 1]
with open(owned.__file__, "w") as file:
    file.write("VALUE = 23\\n")
assert [Shown(loader).value for _ in range(3)] == [23, 23, 23]
"""
    )


def test_iterators_at_the_same_time_do_not_disturb_each_other():
    script(
        """
loaders = [make() for _ in range(3)]
for _ in range(3):
    iterators = [iter(loader) for loader in loaders]
    for _ in range(4):
        for iterator in iterators:
            assert len(next(iterator)[0]) == 2
    assert all(next(iterator, None) is None for iterator in iterators)
"""
    )


def test_a_template_that_is_killed_in_mid_epoch_is_done_without():
    script(
        """
loader = make(max_restarts=1)
first, second = Shown(loader), Shown(loader)
assert second.by_template
iterator = iter(loader)
next(iterator)
os.kill(second.parent, signal.SIGKILL)
assert sum(1 for _ in iterator) == 3
later = [Shown(loader) for _ in range(3)]
assert second.parent not in {epoch.parent for epoch in later}
"""
    )


def test_a_template_that_is_killed_between_epochs_is_done_without():
    script(
        """
loader = make()
templates = {Shown(loader).parent for _ in range(2)}
for _ in range(3):
    epoch = Shown(loader)
    templates.add(epoch.parent)
    if epoch.by_template:
        ending = watched([epoch.parent])
        os.kill(epoch.parent, signal.SIGKILL)
        await_gone(ending)
assert Shown(loader).value == 0
"""
    )


def test_a_crew_that_is_dismissed_while_its_program_loads_leaves_nothing():
    script(
        """
class Slow(Who):
    def __setstate__(self, state):
        time.sleep(0.2)
    def __getstate__(self):
        return {"a": 1}

loader = make(Slow())
Shown(loader)
for _ in range(3):
    iter(loader)._shutdown_workers()
assert Shown(loader).value == 0
await_only_template()
"""
    )


THREADED = """
class Threaded(Who):
    # Starts a thread wherever it is loaded.
    def __setstate__(self, state):
        threading.Thread(target=threading.Event().wait, daemon=True).start()
    def __getstate__(self):
        return {"a": 1}

"""


def test_a_program_that_starts_threads_is_loaded_by_each_worker():
    script(
        THREADED
        + """
loader = make(Threaded())
assert not any(Shown(loader).by_template for _ in range(3))
"""
    )


def test_a_file_that_the_program_opened_is_read_from_its_beginning(tmp_path):
    path = tmp_path / "lines"
    path.write_text("".join(f"{number}\n" for number in range(8)))
    script(
        """
class Lines(torch.utils.data.IterableDataset):
    def __init__(self, path):
        self.path = path
        self.file = open(path, "rb", buffering=0)
    def __getstate__(self):
        return self.path
    def __setstate__(self, path):
        self.__init__(path)
    def __iter__(self):
        return map(int, self.file)

loader = DataLoader(Lines(sys.argv[1]), 8, num_workers=1)
for _ in range(5):
    assert [batch.tolist() for batch in loader] == [list(range(8))]
""",
        path,
    )


def test_a_working_directory_that_was_made_anew_is_the_one_that_is_read(tmp_path):
    script(
        """
class Relative(Who):
    def __getitem__(self, index):
        with open("value") as file:
            self.value = int(file.read())
        return super().__getitem__(index)

loader = make(Relative())
for value in (1, 2):
    os.mkdir(sys.argv[1])
    os.chdir(sys.argv[1])
    with open("value", "w") as file:
        file.write(str(value))
    assert [Shown(loader).value for _ in range(3)] == [value] * 3
    os.rename(sys.argv[1], f"{sys.argv[1]}.{value}")
""",
        tmp_path / "directory",
    )


STUCK = """
class Stuck(Who):
    # Loads for ever while there is a file of this name, and says so in another.
    def __init__(self, path):
        self.path = path
    def __getstate__(self):
        return self.path
    def __setstate__(self, path):
        self.path = path
        if os.path.exists(path):
            with open(path + ".pids", "a") as file:
                file.write(f"{os.getpid()} ")
            threading.Event().wait()

def await_stuck(path):
    for _ in wait_until("the program to be loading"):
        with contextlib.suppress(FileNotFoundError), open(path + ".pids") as file:
            if file.read().endswith(" "):
                return

def pids_of(path):
    with open(path + ".pids") as file:
        return [int(pid) for pid in file.read().split()]
"""


def test_a_template_that_loads_for_ever_holds_up_no_later_epoch(tmp_path):
    script(
        STUCK
        + """
path = sys.argv[1]
loader = make(Stuck(path))
Shown(loader)
open(path, "w").close()
iterators = [iter(loader), iter(loader)]
await_stuck(path)
ending = watched(pids_of(path))
os.unlink(path)
for iterator in iterators:
    iterator._shutdown_workers()
await_gone(ending)
assert Shown(loader).value == 0
assert Shown(loader).by_template
""",
        tmp_path / "stuck",
    )


def test_a_template_that_does_not_answer_holds_up_no_later_epoch():
    script(
        """
loader = make()
Shown(loader)
stopped = Shown(loader).parent
await_only_template()
os.kill(stopped, signal.SIGSTOP)
iterator = iter(loader)
ending = watched([stopped])
iterator._shutdown_workers()
await_gone(ending)
assert Shown(loader).value == 0
"""
    )


def test_a_template_that_cannot_load_leaves_its_crews_to_others_and_ends():
    script(
        THREADED
        + """
loader = make(Threaded())
Shown(loader)
iterators = [iter(loader) for _ in range(3)]
for iterator in iterators:
    assert sum(len(batch[0]) for batch in iterator) == 8
for _ in wait_until("all but the launcher to have ended"):
    if len(descendants(os.getpid())) == 1:
        break
"""
    )


def test_a_zygote_that_is_killed_has_a_successor_from_the_template():
    script(
        """
loader = make(max_restarts=3)
Shown(loader)
template = Shown(loader).parent
iterator = iter(loader)
next(iterator)
zygote = parent_of(iterator._workers[0].pid)
assert parent_of(zygote) == template
os.kill(zygote, signal.SIGKILL)
assert sum(1 for _ in iterator) == 3
assert Shown(loader).parent == template
"""
    )


def test_large_programs_are_not_compared():
    script(
        """
class Large(Who):
    def __init__(self):
        self.data = torch.zeros(17 << 20, dtype=torch.uint8)

loader = make(Large())
assert not any(Shown(loader).by_template for _ in range(3))
"""
    )


def test_a_program_that_takes_much_memory_is_not_kept():
    script(
        """
class Grows(Who):
    def __setstate__(self, megabytes):
        self.data = bytearray(megabytes << 20)
    def __getstate__(self):
        return self.megabytes

for megabytes, kept in ((100, True), (600, False)):
    dataset = Grows()
    dataset.megabytes = megabytes
    loader = make(dataset)
    assert [Shown(loader).by_template for _ in range(3)] == [False, kept, kept]
"""
    )


def memfd(data):
    fd = os.memfd_create("test")
    os.write(fd, data)
    return fd


def test_a_program_that_nobody_wants_is_forgotten(monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(_templates.time, "monotonic", lambda: now[0])
    supervisor, other = socket.socketpair()
    templates = Templates(supervisor, select.poll())
    assert templates.patience_ms() is None
    setup = Setup.pack({"entry": "none"}, {})
    fds = [-1, memfd(setup), memfd(b"program"), -1, -1]
    for number in range(6):
        os.pwrite(fds[2], bytes([number]), 0)
        copied = [-1, fds[1], memfd(os.pread(fds[2], 100, 0)), -1, -1]
        now[0] += 1.0
        assert not templates.enlist(Message(ENLIST, number), copied, ())
        os.close(copied[2])
    assert len(templates.fds()) == 4
    assert templates.patience_ms() == 57_001
    now[0] += 58.5
    templates.expire()
    assert len(templates.fds()) == 2
    now[0] += 60.0
    templates.expire()
    assert templates.fds() == [] and templates.patience_ms() is None
    for fd in fds[1:3]:
        os.close(fd)
    supervisor.close()
    other.close()
