"""The parts of `gristmill.torch`.  Imports torch."""
