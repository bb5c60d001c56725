from faults.toolbox import (
    Add,
    await_gone,
    check_rest,
    engine_processes,
    loader,
    undisturbed,
    watched,
)

reference = undisturbed([Add()], streams=3)
three = iter(loader([Add()], workers=3, streams=3))
for _ in range(5):
    next(three)
state = three.get_state()
three.close()
iterator = iter(loader([Add()], workers=2, streams=None))
next(iterator)
ending = watched(engine_processes(2)["worker"])
iterator.set_state(state)
await_gone(ending)
check_rest(iterator, reference, 5)
