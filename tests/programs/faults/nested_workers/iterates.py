import gristmill

loader = gristmill.load(range(2), num_epochs=1, worker_count=1)
elements = list(loader)
