"""A slow model of the batches that ranks get from an order of elements."""

import itertools


def deal_batches(order, ranks, batch_size, remainder):
    """Return the batches of each rank in one epoch, as lists of (element, is_data).

    `remainder` is the value of a `sharding.Remainder`.
    """
    step = ranks * batch_size
    places = [(element, True) for element in order]
    if remainder == "drop":
        places = places[: len(order) - len(order) % step]
    else:
        copies = itertools.cycle(order)
        while len(places) % step:
            places.append((next(copies), remainder == "wrap"))
    return [
        [
            tuple(places[first + rank : first + step : ranks])
            for first in range(0, len(places), step)
        ]
        for rank in range(ranks)
    ]
