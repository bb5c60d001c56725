"""Applies steps to an element; a step is a call of the user's code."""
from cpython.object cimport PyObject
from libc.stdint cimport int64_t
from libcpp.vector cimport vector
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, clockid_t, timespec

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


# The interval in which a step ran, by the monotonic clock.
cdef struct Lap:
    Py_ssize_t step
    int64_t start_ns
    int64_t end_ns


# The generators, wide indices and clock of a block.
cdef struct BlockContext:
    PyObject* draws  # `at(index)` returns a record's generator; None: no seed.
    # The indices as a list if they may exceed int64; else NULL.
    PyObject* wide_indices
    int64_t* step_times_ns  # Gets the time of each step, in ns; NULL: not measured.
    clockid_t clock
    # Gets the interval of each call of a step; NULL: intervals are not recorded.  Only
    # read if `step_times_ns` is not NULL.
    vector[Lap]* laps


cdef inline int64_t clock_ns(clockid_t clock) noexcept:
    """Return the time of a clock, in ns."""
    cdef timespec time
    clock_gettime(clock, &time)
    return <int64_t>time.tv_sec * 1_000_000_000 + time.tv_nsec


cdef inline int64_t add_lap(
    vector[Lap]* laps, Py_ssize_t step, int64_t start_ns
) noexcept:
    """Add an interval from `start_ns` until now; return the current time."""
    cdef Lap lap
    lap.step = step
    lap.start_ns = start_ns
    lap.end_ns = clock_ns(CLOCK_MONOTONIC)
    laps.push_back(lap)
    return lap.end_ns


cdef inline object generator_of(
    const Step* step, const BlockContext* context, int64_t index, Py_ssize_t place
):
    """Return the generator for a random map, or None if there is no seed."""
    cdef object draws
    if step.draws is not NULL:
        if context.wide_indices is NULL:
            return (<OpDraws>step.draws).draw(index)
        return (<OpDraws>step.draws).at((<list>context.wide_indices)[place])
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
    cdef int64_t start_ns = 0, lap_start_ns = 0
    cdef int64_t end_ns
    cdef object own_generator, generator = None
    if context.step_times_ns is not NULL:
        start_ns = clock_ns(context.clock)
        if context.laps is not NULL:
            lap_start_ns = clock_ns(CLOCK_MONOTONIC)
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
                own_generator = generator_of(step, context, index, place)
                element = call_two(<object>step.call, element, own_generator)
            else:
                # All such steps of a record share one generator.
                if generator is None:
                    generator = generator_of(step, context, index, place)
                element = call_two(<object>step.call, element, generator)
        elif context.wide_indices is NULL:
            element = call_two(<object>step.call, index, element)
        else:
            element = call_two(
                <object>step.call, (<list>context.wide_indices)[place], element
            )
        if context.step_times_ns is not NULL:
            end_ns = clock_ns(context.clock)
            context.step_times_ns[min(k, TIMED_STEPS - 1)] += end_ns - start_ns
            start_ns = end_ns
            if context.laps is not NULL:
                lap_start_ns = add_lap(context.laps, k, lap_start_ns)
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
