"""Applies steps to an element; a step is a call of the user's code."""
from cpython.object cimport PyObject
from libc.stdint cimport int64_t
from libcpp.vector cimport vector
from posix.time cimport clock_gettime, clockid_t, timespec

from gristmill._hot.calls cimport call_one, call_two
from gristmill._hot.draw cimport Draws, OpDraws

# The steps call `call(element)` (MAP), `call(element, generator)` (RANDOM_MAP),
# `call(index, element)` (MAP_WITH_INDEX) and `call(element)` (FILTER).  FILTER keeps
# the elements for which the call returns a true value.
cpdef enum:
    MAP
    RANDOM_MAP
    MAP_WITH_INDEX
    FILTER


# A step, made once per block.  The tuple that it comes from owns `call` and `draws`.
cdef struct Step:
    int kind
    PyObject* call
    PyObject* draws  # The OpDraws of a random map; NULL: the record's generator.


# The maximum number of steps whose times are measured separately.
cdef enum:
    TIMED_STEPS = 30


# The generators, wide indices and clock of a block.
cdef struct BlockContext:
    PyObject* draws  # `at(index)` returns a record's generator; None: no seed.
    PyObject* wide  # The indices as a list if they may exceed int64; else NULL.
    int64_t* spent  # Gets the time of each step, in ns; NULL: not measured.
    clockid_t clock


cdef inline int64_t now(clockid_t clock) noexcept:
    cdef timespec time
    clock_gettime(clock, &time)
    return <int64_t>time.tv_sec * 1_000_000_000 + time.tv_nsec


cdef inline object generator_of(
    const Step* step, const BlockContext* context, int64_t index, Py_ssize_t place
):
    """Return the generator for a random map, or None if there is no seed."""
    cdef object draws
    if step.draws is not NULL:
        if context.wide is NULL:
            return (<OpDraws>step.draws).draw(index)
        return (<OpDraws>step.draws).at((<list>context.wide)[place])
    draws = <object>context.draws
    if type(draws) is Draws:
        return (<Draws>draws).draw(index)
    return None if draws is None else draws.at(index)


cdef inline object run_steps(
    object element,
    int64_t index,
    Py_ssize_t place,
    const vector[Step]& steps,
    const BlockContext* context,
    object absent,
    Py_ssize_t* step_number,
):
    """Return the result of applying the steps, or `absent` if one drops the element.

    Args:
        element: The element.
        index: The element's index.
        place: The element's place in the block.
        steps: The steps.
        context: The generators and indices of the block.
        absent: The object that stands for a dropped element.
        step_number: Gets the number of the current step.
    """
    cdef Py_ssize_t k
    cdef const Step* step
    cdef int64_t began = 0 if context.spent is NULL else now(context.clock)
    cdef int64_t ended
    cdef object drawn, generator = None
    for k in range(<Py_ssize_t>steps.size()):
        step_number[0] = k
        step = &steps[k]
        if step.kind == MAP:
            element = call_one(<object>step.call, element)
        elif step.kind == FILTER:
            if not call_one(<object>step.call, element):
                element = absent
        elif step.kind == RANDOM_MAP:
            if step.draws is not NULL:
                drawn = generator_of(step, context, index, place)
                element = call_two(<object>step.call, element, drawn)
            else:
                # All such steps of a record share one generator.
                if generator is None:
                    generator = generator_of(step, context, index, place)
                element = call_two(<object>step.call, element, generator)
        elif context.wide is NULL:
            element = call_two(<object>step.call, index, element)
        else:
            element = call_two(
                <object>step.call, (<list>context.wide)[place], element
            )
        if context.spent is not NULL:
            ended = now(context.clock)
            context.spent[min(k, TIMED_STEPS - 1)] += ended - began
            began = ended
        if element is absent:
            break
    return element


cdef inline Step make_step(int kind, object call, OpDraws draws):
    cdef Step step
    step.kind = kind
    step.call = <PyObject*>call
    step.draws = NULL
    if draws is not None:
        step.draws = <PyObject*>draws
    return step
