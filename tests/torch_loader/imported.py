"""A dataset that says what a worker has imported; it imports nothing itself."""

import sys


class Imported:
    """One sample: which modules of Gristmill there are."""

    def __len__(self):
        return 1

    def __getitem__(self, index):
        return [name for name in sys.modules if name.startswith("gristmill.")]
