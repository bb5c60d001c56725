"""Tells which process a worker was forked from."""

import os


class Parent:
    def __len__(self):
        return 1

    def __getitem__(self, index):
        return os.getppid()
