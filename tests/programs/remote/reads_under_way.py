import pathlib
import sys
import threading

import numpy as np

from gristmill import _core


class Reader:
    path, parallel = "stuck", 4
    gap_bytes, run_bytes, tail_bytes = 0, 1 << 20, 0
    content = pathlib.Path(sys.argv[1]).read_bytes()
    size = len(content)
    stuck = False
    met = threading.Semaphore(0)

    def read_range(self, offset, size):
        if self.stuck:
            self.met.release()
            if sys.argv[2] == "busy":
                while True:
                    pass
            threading.Event().wait()
        return self.content[offset : offset + size]

    def change(self):
        return ""


reader = Reader()
file = _core.RecordFile(reader)
Reader.stuck = True
read = _core.PendingRead(_core.Pool(1), file, np.arange(0, 40, 4))
thread = threading.Thread(target=file.read_many, args=(np.arange(1, 40, 4),))
thread.daemon = True
thread.start()
for _ in range(8):
    reader.met.acquire()
print("ends")
