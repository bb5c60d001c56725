import sys

import grain
import grain.python
import grain.python as pygrain
import grain.python.experimental
import grain.transforms as transforms
import helper
from grain import samplers
from grain.python import experimental


def check():
    assert helper.VALUE == grain.RECORD
    assert grain.__name__ == "gristmill"
    assert pygrain.MapTransform is transforms.Map is grain.transforms.Map
    assert samplers.IndexSampler is pygrain.IndexSampler
    assert experimental.index_shuffle(0, 0, 0, 4) == 0
    assert grain.config.py_debug_mode is ("--grain_py_debug_mode" in sys.argv)


if __name__ == "__main__":
    check()
    print("ran", __name__, *sys.argv[1:])
