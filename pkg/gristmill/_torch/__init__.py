"""The parts of `gristmill.torch`."""
