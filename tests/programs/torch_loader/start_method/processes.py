import importlib
import json
import multiprocessing
import os
import sys
import time

DataLoader = importlib.import_module(sys.argv[1]).DataLoader
PROGRAM = os.getpid()


class Probe:
    def __len__(self):
        return 2

    def __getitem__(self, index):
        current = multiprocessing.current_process()
        parent = multiprocessing.parent_process()
        try:
            multiprocessing.Process(target=print).start()
        except AssertionError as error:
            refusal = str(error)
        found = {
            "name": current.name,
            "daemon": current.daemon,
            "parent": [parent.pid == PROGRAM, parent.name],
            "parent lives": parent.is_alive(),
            "children": len(multiprocessing.active_children()),
            "refusal": refusal,
        }
        current._config["daemon"] = False
        child = multiprocessing.get_context("fork").Process(
            target=time.sleep, args=(1000,)
        )
        child.start()
        child.terminate()
        child.join()
        # torch's worker lets it exit with 0.
        return json.dumps({**found, "child has ended": child.exitcode in (0, -15)})


loader = DataLoader(Probe(), num_workers=2, **json.loads(sys.argv[2]))
batches = iter(loader)
found = [json.loads(text) for [text] in batches]
batches = iter(loader)
names = sorted(child.name for child in multiprocessing.active_children())
list(batches)
print(json.dumps({"found": found, "names": names}))
