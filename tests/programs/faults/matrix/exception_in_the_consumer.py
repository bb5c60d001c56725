import sys

from faults.toolbox import Add, check_rest, expect, loader, undisturbed

workers = int(sys.argv[1])
reference = undisturbed([Add()])
iterator = iter(loader([Add()], workers=workers))


def consume():
    for number, _batch in enumerate(iterator):
        if number == 4:
            raise ZeroDivisionError


expect(ZeroDivisionError, consume)
state = iterator.get_state()
check_rest(iterator, reference, 5)
fresh = iter(loader([Add()], workers=workers))
fresh.set_state(state)
check_rest(fresh, reference, 5)
