import os
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import tensorflow_datasets as tfds

from support.arrow_types import same
from unit.sources.test_tfds import FIXED, Fixed, batches

source = tfds.builder_from_directory(sys.argv[1]).as_data_source(split="train")
wanted = [{name: element[name] for name in FIXED} for element in source]
expected = batches(wanted, 0)
for workers in (0, 2):
    found = batches(source, workers, Fixed())
    assert len(found) == len(expected) == 4
    assert all(map(same, found, expected)), workers
print("same", repr(source))
