"""Is found beside the program."""

import grain

VALUE = grain.RECORD
