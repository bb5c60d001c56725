"""Pipelines of each kind: batches, streams with owners, and single elements."""


def options_of(kind):
    return {"batch": 0 if kind == "single" else 4}
