"""Prints the name of a worker process in `multiprocessing`."""

import multiprocessing

import grain


def name(_):
    return multiprocessing.current_process().name


def main():
    options = grain.multiprocessing.MultiprocessingOptions(1, 5)
    dataset = grain.MapDataset.range(1).map(name).to_iter_dataset()
    print(*dataset.mp_prefetch(options))


if __name__ == "__main__":
    main()
