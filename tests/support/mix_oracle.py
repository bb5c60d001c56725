"""The order of mixtures that count tokens, one element after another."""

import math


def mix_order(lengths, stages, *, unit, progress_unit, ends, at_end, streams=1):
    """Yield the number of the dataset, and the index in it, of each element.

    Args:
        lengths: For each dataset, a function from the index to the tokens.
        stages: Pairs (start, weights).
        unit: What weights are shares of.
        progress_unit: What starts count.
        ends: The number of elements of each dataset, or math.inf.
        at_end: "stop" or "drop".
        streams: The number of streams that share the elements.
    """
    count = len(lengths)
    taken, delivered = [0] * count, [0] * count
    leads, bases, ended = [0.0] * count, [0] * count, [False] * count
    weights, progress = stages[0][1], 0

    def due(i):
        if ended[i] or not weights[i]:
            return math.inf
        return (leads[i] + (delivered[i] - bases[i])) / weights[i]

    while True:
        current = [w for start, w in stages if start <= progress * streams][-1]
        if current != weights:
            dues = [due(i) for i in range(count)]
            first = min(dues)
            for i in range(count):
                if dues[i] < math.inf and first < math.inf:
                    leads[i] = (dues[i] - first) * weights[i]
                else:
                    leads[i] += delivered[i] - bases[i]
            bases, weights = list(delivered), current
        best = min(range(count), key=lambda i: (due(i), i))
        if due(best) == math.inf:
            return
        if taken[best] >= ends[best]:
            ended[best] = True
            if at_end == "stop":
                return
            continue
        size = lengths[best](taken[best])
        yield best, taken[best]
        taken[best] += 1
        delivered[best] += size if unit == "tokens" else 1
        progress += size if progress_unit == "tokens" else 1
