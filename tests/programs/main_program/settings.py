"""Prints the settings in a worker that the top level of a script has made."""

import decimal
import gc
import importlib
import json
import locale
import logging
import os
import signal
import socket
import sys
import types
import warnings

import jax
import numpy as np
import PIL.Image
import PIL.ImageFile

grain = importlib.import_module(sys.argv[1])

sys.setrecursionlimit(3456)
sys.set_int_max_str_digits(5000)
sys.path.append("/appended")
os.environ["SET_AT_THE_TOP"] = "1"
warnings.filterwarnings("error", "mine", UserWarning)
logging.getLogger().setLevel(logging.INFO)
logging.getLogger("mine").setLevel(logging.DEBUG)
decimal.getcontext().prec = 5
locale.setlocale(locale.LC_NUMERIC, "C.UTF-8")
gc.set_threshold(12345)
signal.signal(signal.SIGUSR2, signal.SIG_IGN)
socket.setdefaulttimeout(11)
np.seterr(divide="raise")
np.set_printoptions(precision=3)
jax.config.update("jax_enable_x64", True)
jax.config.update("jax_default_prng_impl", "rbg")
jax.config.update("jax_numpy_rank_promotion", "raise")
PIL.ImageFile.LOAD_TRUNCATED_IMAGES = True
PIL.Image.MAX_IMAGE_PIXELS = 7
json.patched = True
sys.modules["made_here"] = types.SimpleNamespace(value=7)
value = "top"


def found():
    mine = [one for one in warnings.filters if getattr(one[1], "pattern", "") == "mine"]
    return {
        "recursion": sys.getrecursionlimit(),
        "digits": sys.get_int_max_str_digits(),
        "path": sys.path[-1],
        "argv": sys.argv[2:],
        "environment": [os.environ.get("SET_AT_THE_TOP"), os.environ.get("SET_LATER")],
        "filter": [mine[0][0], mine[0][2].__name__],
        "root level": logging.getLogger().level,
        "level": logging.getLogger("mine").level,
        "precision": decimal.getcontext().prec,
        "locale": locale.setlocale(locale.LC_NUMERIC),
        "collector": gc.get_threshold()[0],
        "signal": signal.getsignal(signal.SIGUSR2),
        "timeout": socket.getdefaulttimeout(),
        "errors": np.geterr(),
        "printing": np.get_printoptions()["precision"],
        "ones": str(jax.numpy.ones(2).dtype),
        "key": jax.random.key_data(jax.random.key(0)).tolist(),
        "promotion": jax.config.jax_numpy_rank_promotion,
        "truncated": PIL.ImageFile.LOAD_TRUNCATED_IMAGES,
        "pixels": PIL.Image.MAX_IMAGE_PIXELS,
        "patched": hasattr(json, "patched"),
        "module": "made_here" in sys.modules,
        # Functions are sent with the program's current globals, modules are not.
        "sent": value,
        "in the module": getattr(sys.modules["__main__"], "value", None),
        "name": sys.modules["__main__"].__name__,
    }


class Find(grain.transforms.Map):
    def map(self, element):
        return json.dumps(found())


def main():
    global value
    value = "later"
    os.environ["SET_LATER"] = "1"
    if sys.argv[1] == "grain":
        importlib.import_module("absl.flags").FLAGS.mark_as_parsed()
    loader = grain.DataLoader(
        data_source=range(1),
        sampler=grain.samplers.IndexSampler(1, num_epochs=1),
        operations=[Find()],
        worker_count=int(sys.argv[2]),
    )
    print(next(iter(loader)))


if __name__ == "__main__":
    main()
