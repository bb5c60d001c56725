import importlib
import json
import sys

import gristmill.drop_in

gristmill.drop_in.install()
spaces = [
    gristmill,
    *(
        importlib.import_module(f"gristmill.{name}")
        for name in (
            "checkpoint constants experimental multiprocessing python samplers sharding"
            " sources transforms"
        ).split()
    ),
]
for module, name in json.loads(sys.argv[1]):
    found = getattr(importlib.import_module(f"grain.{module}"), name)
    others = [getattr(space, name) for space in spaces if hasattr(space, name)]
    assert all(found is other for other in others), (module, name)
    print(module, name, bool(others))
