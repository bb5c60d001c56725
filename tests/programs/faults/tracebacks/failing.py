"""Prints as JSON the tracebacks of errors in workers, chosen by its arguments."""

import json
import sys
import traceback

import gristmill


class Unpicklable(Exception):
    def __reduce__(self):
        raise TypeError("it stays here")


def fail(x):
    if x == 5:
        raise LookupError(f"bad {x}")  # in fail
    return x


class Decode(gristmill.MapTransform):
    def map(self, x):
        return fail(x)  # in Decode


class Keep(gristmill.FilterTransform):
    def filter(self, x):
        return fail(x) >= 0  # in Keep


class Chain(gristmill.MapTransform):
    def map(self, x):
        try:
            return fail(x)
        except LookupError as error:
            error.add_note("a note on the cause")
            raise ValueError("the effect") from error  # in Chain


class Hide(gristmill.MapTransform):
    def map(self, x):
        if x == 5:
            raise Unpicklable("kept words")  # in Hide
        return x


class Source:
    def __len__(self):
        return 8

    def __getitem__(self, index):
        return fail(index)  # in Source


def loader(*operations, source=range(8)):
    return gristmill.load(
        source, num_epochs=1, transformations=operations, batch_size=2, worker_count=2
    )


def chain(ds):
    return ds.mp_prefetch(gristmill.MultiprocessingOptions(num_workers=2))


def torch_loader(method):
    import gristmill.torch

    return gristmill.torch.DataLoader(
        Source(), batch_size=2, num_workers=2, multiprocessing_context=method
    )


NUMBERS = gristmill.MapDataset.range(8)
FAILING = {
    "transform": lambda: loader(Decode()),
    "filter": lambda: loader(Keep()),
    "source": lambda: loader(source=Source()),
    "cause": lambda: loader(Chain()),
    "unpicklable": lambda: loader(Hide()),
    "batched chain": lambda: chain(NUMBERS.map(fail).batch(2).to_iter_dataset()),
    "iterated chain": lambda: chain(NUMBERS.to_iter_dataset().map(fail).batch(2)),
    "torch fork": lambda: torch_loader("fork"),
    "torch launcher": lambda: torch_loader("launcher"),
}


def text_of(outputs):
    try:
        list(outputs)
    except Exception:
        return traceback.format_exc()
    raise AssertionError("nothing failed")


if __name__ == "__main__":
    print(json.dumps({name: text_of(FAILING[name]()) for name in sys.argv[1:]}))
