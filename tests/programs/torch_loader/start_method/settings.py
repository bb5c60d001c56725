import contextlib
import importlib
import json
import logging
import os
import resource
import sys
import tempfile
import types
import warnings

import numpy as np
import PIL.ImageFile
import torch
import torch.serialization

DataLoader = importlib.import_module(sys.argv[1]).DataLoader


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
        "seterr": np.geterr(),
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
np.seterr(all="raise")
os.umask(0o027)
BEFORE = os.nice(0)
os.nice(3)
resource.setrlimit(resource.RLIMIT_NOFILE, (200, 4096))
with open(sys.argv[2], "w+") as LINES, tempfile.TemporaryFile("w+") as output:
    LINES.write("first\nsecond\n")
    LINES.seek(0)
    LINES.readline()
    with torch.no_grad(), contextlib.redirect_stdout(output):
        [[found]] = DataLoader(Probe(), num_workers=1)
    output.seek(0)
    assert output.read() == "from a worker\n"
print(found)
