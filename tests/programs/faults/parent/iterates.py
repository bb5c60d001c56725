"""Prints when it begins and when it is in the middle of a long iteration."""

from faults.toolbox import Add, loader

print("begun", flush=True)
iterator = iter(loader([Add()], records=10_000_000, batch=64))
for number, _ in enumerate(iterator):
    if number == 20:
        print("in the middle", flush=True)
