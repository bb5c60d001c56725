import sys

from gristmill.torch import DataLoader
from torch_loader.abandoning import Stream, iterate

context, log = sys.argv[1:]
options = {"num_workers": 1, "multiprocessing_context": context}
for _ in DataLoader(Stream(iterate, log), batch_size=4, **options):
    break
