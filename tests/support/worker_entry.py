"""What the launcher imports for all workers of tests, see conftest.py.

Tests are found in modules that import these; every pool would import them again.
"""

import hypothesis.strategies  # noqa: F401
import pytest  # noqa: F401

import gristmill._engine.worker  # noqa: F401
