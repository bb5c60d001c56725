import resource

from gristmill import _core


def faults_of_a_batch():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    batch = [bytes([i]) * 100_000 for i in range(64)]
    del batch
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


_core.keep_freed_memory()
for _ in range(3):
    faults_of_a_batch()
print(sum(faults_of_a_batch() for _ in range(10)))
