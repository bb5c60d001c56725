"""Opens a file whose position all forks of its process would share."""

import os
import tempfile

LINES = 400
_path = os.path.join(tempfile.mkdtemp(), "lines")
with open(_path, "w") as _file:
    _file.writelines(f"{number:15}\n" for number in range(LINES))
_lines = open(_path, "rb", buffering=0)  # noqa: SIM115


def line(number):
    _lines.seek(16 * number)
    os.sched_yield()  # Let another process run in between.
    return int(_lines.read(16))
