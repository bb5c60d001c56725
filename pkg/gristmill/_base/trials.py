"""The exception of trials, with which `report(verify=True)` measures a pipeline."""


class NotTriedError(Exception):
    """Raised if a pipeline cannot be tried.  Its text ends a sentence of the report."""
