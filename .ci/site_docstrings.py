"""Makes the site show the ``Example:`` section of a docstring as code.

It already does that for ``Examples:``.
"""

import re

import griffe

EXAMPLE = re.compile(r"^Example:$", re.MULTILINE)


class ExamplesAreCode(griffe.Extension):
    """Renames the section in the docstrings that the site shows."""

    def on_object(self, *, obj, **_):
        if obj.docstring is not None:
            obj.docstring.value = EXAMPLE.sub("Examples:", obj.docstring.value)
