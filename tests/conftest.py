"""Configure pytest, Hypothesis and the environment for all tests."""

import contextlib
import gc
import importlib
import importlib.metadata
import os
import pathlib
import re
import signal
import sys

import pytest
from hypothesis import HealthCheck, settings

from gristmill._workers import parent
from support import extras

# A shell without job control starts `&` jobs with SIGINT ignored, and the programs that
# the tests start and interrupt would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Set before anything imports jax: the tests are about data, not accelerators.
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("KERAS_BACKEND", "jax")

# Examples are the same in every run, so that `make test` gives one result for each
# commit. Examples have no deadline, because two test processes share the cores.
settings.register_profile(
    "gristmill",
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
# `make soak` draws new examples.
settings.register_profile(
    "soak", parent=settings.get_profile("gristmill"), derandomize=False
)
settings.load_profile(os.environ.get("GRISTMILL_HYPOTHESIS_PROFILE", "gristmill"))


# In CI everything is installed, so a failing import is an error.
EVERYTHING_IS_INSTALLED = os.environ.get("CI") == "true"
if EVERYTHING_IS_INSTALLED:
    pytest.importorskip = importlib.import_module


def missing_package(error: BaseException | None) -> str | None:
    """Return the package of another project whose absence caused the error, or None."""
    while error is not None:
        if isinstance(error, importlib.metadata.PackageNotFoundError):
            return error.name  # Gristmill itself, built but not installed.
        if isinstance(error, ImportError):
            told = re.search(r"needs? the (\S+) package\. Install it", str(error))
            if told:  # An error text of Gristmill.
                return told[1]
        if isinstance(error, ModuleNotFoundError) and error.name:
            package = error.name.partition(".")[0]
            here = pathlib.Path(__file__).parent
            beside = (here / package).is_dir() or [*here.glob(f"**/{package}.py")]
            helper = beside and package not in extras.packages("test")
            ours = package == "gristmill" or helper
            return None if ours or package in sys.stdlib_module_names else package
        error = error.__cause__ or error.__context__
    return None


@contextlib.contextmanager
def skipping_without_packages():
    """Skip the test if it imports a missing package of the extra `test`."""
    try:
        yield
    except ImportError as error:
        package = missing_package(error)
        if EVERYTHING_IS_INSTALLED or package is None:
            raise
        pytest.skip(f"could not import {package}: pip install '.[test]'")


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    report = yield
    failure = report.call.excinfo
    package = missing_package(failure.value) if report.failed else None
    if package and not EVERYTHING_IS_INSTALLED:
        report.outcome = "skipped"
        report.longrepr = (str(collector.path), 0, f"Skipped: needs {package}")
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item):
    with skipping_without_packages():
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    with skipping_without_packages():
        return (yield)


def pytest_configure():
    """Let the launcher import what test modules import, once for all of them."""
    configure = parent.configure
    parent.configure = lambda entry, also=(): configure("support.worker_entry", also)


def pytest_collection():
    """Keep modules and tests out of the garbage collector's scans."""
    gc.disable()


def pytest_collection_finish():
    gc.freeze()
    gc.enable()
