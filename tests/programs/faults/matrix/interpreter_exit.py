import sys

from faults.scripts import start
from faults.toolbox import await_gone, in_time, watched

how = sys.argv[1]
with start("faults/matrix/ends_with_workers", how) as script:
    ending = watched(map(int, script.stdout.readline().split()))
    assert len(ending) == 2
    with in_time():
        code = script.wait(10)
        await_gone(ending)
    assert code == {"exit": 3, "exception": 1}.get(how, 0), code
    error = script.stderr.read()
    assert error == "" or how == "exception", error
    assert "Exception ignored" not in error
