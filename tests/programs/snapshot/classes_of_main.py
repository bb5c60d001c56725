import collections

import gristmill as g
from unit.engine.test_snapshot import loader

Point = collections.namedtuple("Point", "x y")


class Offset:
    def __init__(self, by):
        self.by = by


class Shift(g.MapTransform):
    def __init__(self, offset):
        self.offset = offset

    def map(self, element):
        return Point(element, element + self.offset.by)


class Source:
    def __len__(self):
        return 4

    def __getitem__(self, index):
        return index * scale


scale = 3
found = list(loader(Source(), [Shift(Offset(1))]))
assert found == [Point(0, 1), Point(3, 4), Point(6, 7), Point(9, 10)], found
assert type(found[0]) is Point
