import sys

import gristmill as g
from faults.toolbox import digest, expect, loader, of_kind, undisturbed
from programs.faults.memory.wide import Wide

operations = of_kind(sys.argv[1], Wide())
limit = 24 << 20
iterator = iter(loader(operations, records=400, memory_limit=limit))
reference = undisturbed(operations, records=400)
kept = []


def keep():
    for batch in iterator:
        kept.append(batch)


error = expect(g.errors.ArenaFull, keep, deadline_s=10)
assert isinstance(error, MemoryError)
need = kept[0].nbytes
words = str(error).replace(",", " ").split()
numbers = [int(word) for word in words if word.isdigit()]
assert need <= numbers[0] <= 2 * need, error
assert limit in numbers[:3], error
assert f"by {len(kept)} outputs that you keep" in str(error), error
assert need * (len(kept) + 1) <= 1.3 * limit and len(kept) >= 3, len(kept)
copies = digest(kept)
# After some outputs are freed, the iterator continues.
kept.clear()
rest = []
for batch in iterator:
    rest += digest([batch])
    del batch
assert copies + rest == reference
