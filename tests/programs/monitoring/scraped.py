"""Uses datasets and a loader with two workers, and prints the metrics for a scraper."""

import sys
import urllib.request

import numpy as np

import gristmill as grain

ds = grain.MapDataset.source([np.zeros(100)] * 300).shuffle(1).map(lambda x: x + 1)
list(ds.to_iter_dataset().batch(2))
loader = grain.load(list(range(40)), num_epochs=1, batch_size=2, worker_count=2)
print(len(list(loader)))
page = urllib.request.urlopen(f"http://localhost:{sys.argv[1]}/metrics").read()
print(page.decode())
