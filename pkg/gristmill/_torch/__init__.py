"""The parts of `gristmill.torch`, which has the public names."""

from gristmill import _launcher

# Before torch is imported here: a launcher imports it meanwhile, so that workers
# start at once.
_launcher.start_early(_launcher.FOR_TORCH)
