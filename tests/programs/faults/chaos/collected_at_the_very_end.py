import builtins

from faults.toolbox import Add, loader


class Cycle:
    pass


cycle = Cycle()
cycle.itself = cycle
cycle.iterator = iter(loader([Add()], records=100_000))
cycle.batch = next(cycle.iterator)


def generate():
    yield from iter(loader([Add()], records=100_000))


builtins.generator = generate()
next(builtins.generator)
builtins.cycle = cycle
