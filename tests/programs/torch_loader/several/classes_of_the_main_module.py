from gristmill.torch import DataLoader


class Thing:
    seen = 0

    def method(self):
        pass


class Things:
    def __len__(self):
        return 4

    def __getitem__(self, index):
        return Thing()


method = Thing.method
for thing in DataLoader(Things(), None, num_workers=1):
    assert type(thing) is Thing
    Thing.seen += 1
assert Thing.seen == 4
assert Thing.method is method
