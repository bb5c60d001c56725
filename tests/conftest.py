"""Settings that all tests share."""

import os

from hypothesis import HealthCheck, settings

# Set before anything imports jax: the tests are about data, not accelerators.
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("KERAS_BACKEND", "jax")

# Tests that import gristmill.torch need no second Python with torch in it; those of
# the launcher that begins early set it anew.
os.environ.setdefault("GRISTMILL_EARLY_LAUNCHER", "0")

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
