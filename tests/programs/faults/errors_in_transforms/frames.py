"""Names of the functions in a traceback."""

import traceback


def frames(error):
    return [f.name for f in traceback.extract_tb(error.__traceback__)]
