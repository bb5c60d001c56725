"""Has the site show a docstring's ``Example:`` as code, as it does ``Examples:``."""

import re

import griffe

EXAMPLE = re.compile(r"^Example:$", re.MULTILINE)


class ExamplesAreCode(griffe.Extension):
    """Renames the section in what is shown."""

    def on_object(self, *, obj, **_):
        if obj.docstring is not None:
            obj.docstring.value = EXAMPLE.sub("Examples:", obj.docstring.value)
