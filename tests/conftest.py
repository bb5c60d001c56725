"""Settings that all tests share."""

import os
import signal

from hypothesis import HealthCheck, settings

# A shell without job control has what it starts with `&` ignore Ctrl-C, and so would
# all programs that the tests start, and interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Set before anything imports jax: the tests are about data, not accelerators.
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("KERAS_BACKEND", "jax")

# Examples are drawn the same way in every run, so that `make test` gives one answer
# for one commit, and take as long as they need: two test processes share the cores.
settings.register_profile(
    "gristmill",
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
# `make soak` looks for new examples.
settings.register_profile(
    "soak", parent=settings.get_profile("gristmill"), derandomize=False
)
settings.load_profile(os.environ.get("GRISTMILL_HYPOTHESIS_PROFILE", "gristmill"))
