"""Says so once it has begun; what it does next is left to chance."""

from faults.toolbox import Add, loader

print("begun", flush=True)
iterator = iter(loader([Add()], records=10_000_000, batch=64))
for number, _ in enumerate(iterator):
    if number == 20:
        print("in the middle", flush=True)
