"""Workers of torch's loaders in tests of a process in which others may use JAX."""


def of_workers(number):
    """Options of a loader: forks, as torch's are, whatever was initialised before."""
    return {
        "num_workers": number,
        "multiprocessing_context": "fork" if number else None,
    }
