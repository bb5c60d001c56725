import resource
import sys

import numpy as np

from gristmill import sources

resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
source = sources.ArrayRecordDataSource(sys.argv[1:])
for seed in range(3):
    keys = np.random.default_rng(seed).permutation(len(source))
    assert [int(r) for r in source.__getitems__(keys)] == keys.tolist()
    assert int(source[int(keys[0])]) == keys[0]
