import opened

import gristmill


class Read(gristmill.MapTransform):
    def map(self, number):
        return opened.line(number)


if __name__ == "__main__":
    numbers = range(opened.LINES)
    loader = gristmill.load(
        numbers, num_epochs=1, transformations=[Read()], worker_count=2
    )
    assert list(loader) == list(numbers)
