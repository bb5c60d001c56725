"""The parts of `gristmill.torch`, which has the public names."""
