"""Workers of torch's loaders in tests whose process may have initialized JAX."""


def of_workers(number):
    """Return options of a loader that forks its workers, like torch, despite JAX."""
    return {
        "num_workers": number,
        "multiprocessing_context": "fork" if number else None,
    }
