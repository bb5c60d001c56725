"""A module in the folder of the program, which imports it."""

import grain

VALUE = grain.RECORD
