"""What zygotes had to import, the launcher has for the next ones."""

import pytest

from faults.scripts import run

pytestmark = pytest.mark.multiprocess

SCRIPT = """
import importlib

def needs(name):
    known = name in sys.modules
    importlib.import_module(name)
    return Needs(name, known)

class Needs:
    # Says whether its module had been imported before it was unpickled.
    def __init__(self, name, known=False):
        self.name, self.known = name, known
    def __len__(self):
        return 8
    def __getitem__(self, index):
        return self.known
    def __reduce__(self):
        return needs, (self.name,)

def known(name):
    sampler = g.IndexSampler(8, shuffle=False, num_epochs=1, seed=0)
    loader = g.DataLoader(data_source=Needs(name), sampler=sampler, worker_count=1)
    return list(loader) == [True] * 8
"""


def test_the_launcher_imports_what_a_zygote_had_to():
    run(
        SCRIPT
        + """
assert not known("sklearn.datasets")
for _ in wait_until("the launcher to have imported it"):
    if known("sklearn.datasets"):
        break
"""
    )


def test_the_users_own_files_are_imported_anew_each_time(tmp_path):
    (tmp_path / "owned.py").write_text("import time\ntime.sleep(0.05)\n")
    run(
        SCRIPT
        + f"""
sys.path.insert(0, {str(tmp_path)!r})
assert not known("owned")
assert not known("sklearn.datasets")  # A lesson that comes after that one.
for _ in wait_until("the launcher to have learned"):
    if known("sklearn.datasets"):
        break
assert not known("owned")
"""
    )
