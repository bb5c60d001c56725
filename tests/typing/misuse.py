"""Wrong use that type checkers refuse: each ignore comment is needed."""
# ruff: noqa: B018

from typing import assert_type

import gristmill as grain


class Decode(grain.MapTransform):
    def map(self, record: bytes) -> str:
        return record.decode()


class Rows:
    def __getitem__(self, index: int) -> bytes:
        return b""


numbers = grain.MapDataset.range(3)
stream = numbers.to_iter_dataset()
sampler = grain.SequentialSampler(3)


def shout(text: str) -> str:
    return text.upper()


def check(loader: grain.DataLoader[int], array: grain.RangeDataSource) -> None:
    # Functions, transforms or batch functions for other elements.
    numbers.map(shout)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    numbers.map(Decode())  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    numbers.map(3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    stream.map(shout)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    numbers.map(lambda x: x.decode())  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownLambdaType]
    numbers.filter(shout)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    numbers.filter(print)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    numbers.random_map(lambda x: x)  # type: ignore[arg-type, misc]  # pyright: ignore[reportArgumentType]
    numbers.batch(2, batch_fn=shout)  # type: ignore[arg-type]  # pyright: ignore[reportCallIssue, reportArgumentType]
    numbers.batch("2")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]
    numbers.apply(shout)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    stream.mp_prefetch(4)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]

    # Arguments that are not sources, samplers or operations.
    grain.MapDataset.source(10)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]
    grain.MapDataset.source(x for x in "ab")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]
    grain.load(Rows())  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]
    grain.load({1, 2})  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]
    grain.load([1], num_workers=2)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
    grain.DataLoader(data_source=[1], sampler=[0])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]
    grain.DataLoader(data_source=Rows(), sampler=sampler)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    grain.DataLoader(data_source=[1], sampler=sampler, operations=[3])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]
    grain.DataLoader([1], sampler)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]

    # Elements used as another type.
    for element in loader:
        shout(element)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    assert_type(numbers[0], int)  # type: ignore[assert-type]  # pyright: ignore[reportAssertTypeFailure]
    words: grain.MapDataset[str] = numbers  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
    print(words, array[0].decode())  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownArgumentType]

    # Names that do not exist.
    grain.MapDatset  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
    grain.python.MapDatset  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
    grain.sources.ArrayRecordSource  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
    grain.transforms.Mapp  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
    grain.experimental.Nothing  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
    grain.checkpoint.CheckpointLoad  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
