"""Tests of settings, which have Grain's names and are set in three ways."""

import sys

import pytest

from faults.scripts import run
from gristmill.config import OPTIONS, Config

GRAIN_DEFAULTS = {
    "py_debug_mode": False,
    "py_dataset_visualization_output_dir": None,
    "py_relay_sigterm_to_main": False,
    "py_traceback_filtering": "auto",
    "tf_interleaved_shuffle": False,
    "tf_interleaved_shuffle_block_size": 10,
    "tf_interleaved_shuffle_parallel_blocks": 10,
    "tf_lookup_batch_size": 100,
    "tf_lookup_num_parallel_calls": -1,
    "tf_lookup_fast_warmup": False,
    "tf_optimized_sequential_read": False,
    "tf_prefetch_buffer_size": -1,
}


@pytest.fixture
def config(monkeypatch):
    # Tests of Grain in this process may have set the flags.
    module = sys.modules[Config.__module__]
    monkeypatch.setattr(module, "_absl_flag", lambda name: None)
    return Config()


def test_names_and_defaults_match_grain(config):
    assert {name: config.get_or_default(name) for name in OPTIONS} == GRAIN_DEFAULTS
    grain = pytest.importorskip("grain")
    for name, default in GRAIN_DEFAULTS.items():
        assert grain.config.get_or_default(name) == default


@pytest.mark.claim(
    "Options are absl flags: scripts that parse no flags get "
    "UnparsedFlagAccessError, unknown names ValueError"
)
def test_update_sets_option(config):
    config.update("tf_lookup_batch_size", 7)
    assert config.tf_lookup_batch_size == 7


@pytest.mark.claim(
    "Options are absl flags: scripts that parse no flags get "
    "UnparsedFlagAccessError, unknown names ValueError"
)
def test_unknown_names_are_attribute_errors(config):
    assert not hasattr(config, "nonsense")
    for call in (
        lambda: config.nonsense,
        lambda: config.get_or_default("nonsense"),
        lambda: config.update("nonsense", 1),
    ):
        with pytest.raises(AttributeError, match=r"^Unrecognized .*: nonsense"):
            call()
        with pytest.raises(ValueError):
            call()


def test_setting_attributes_directly_is_refused(config):
    with pytest.raises(ValueError, match=r"Please use update\(\)"):
        config.py_debug_mode = True


@pytest.mark.claim(
    "Options are absl flags: scripts that parse no flags get "
    "UnparsedFlagAccessError, unknown names ValueError"
)
@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("py_debug_mode", "1", True),
        ("py_debug_mode", "False", False),
        ("tf_lookup_batch_size", "12", 12),
        ("py_traceback_filtering", "off", "off"),
        ("py_dataset_visualization_output_dir", "", ""),
    ],
)
def test_environment_sets_option(config, monkeypatch, name, text, value):
    monkeypatch.setenv(f"GRISTMILL_{name.upper()}", text)
    assert getattr(config, name) == value


@pytest.mark.claim(
    "Arguments of a wrong type or value fail at the first element, often with "
    "AttributeError, AssertionError or ZeroDivisionError, or never"
)
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("py_debug_mode", "maybe"),
        ("tf_lookup_batch_size", "many"),
        ("tf_lookup_batch_size", 1.5),
        ("py_traceback_filtering", "loud"),
        ("py_traceback_filtering", None),
    ],
)
def test_values_of_wrong_type_are_refused(config, monkeypatch, name, value):
    with pytest.raises(ValueError, match=rf"^{name} must be .* in config\.update"):
        config.update(name, value)


def test_bad_environment_value_names_variable(config, monkeypatch):
    monkeypatch.setenv("GRISTMILL_PY_DEBUG_MODE", "maybe")
    with pytest.raises(ValueError, match=r"got 'maybe' in GRISTMILL_PY_DEBUG_MODE"):
        config.py_debug_mode  # noqa: B018


@pytest.mark.claim(
    "Options are absl flags: scripts that parse no flags get "
    "UnparsedFlagAccessError, unknown names ValueError"
)
@pytest.mark.parametrize(
    ("given", "printed"),
    [([], "False 5"), (["--grain_py_debug_mode"], "True 5")],
)
def test_parsed_flags_override_environment(monkeypatch, given, printed):
    pytest.importorskip("absl")
    monkeypatch.setenv("GRISTMILL_TF_LOOKUP_BATCH_SIZE", "5")
    assert run("config/parsed_flags", *given).split() == printed.split()


# Modules to import, in this order.
ORDERS = {
    "flags last": ["gristmill", "absl.flags"],
    "grain after": ["gristmill", "absl.flags", "grain"],
    "grain before": ["grain", "gristmill", "absl.flags"],
    "drop_in": ["gristmill.drop_in", "absl.flags"],
}


@pytest.mark.parametrize("order", ORDERS)
def test_grain_flags_exist_with_absl(order):
    pytest.importorskip("absl")
    pytest.importorskip("grain")
    assert run("config/every_flag", *ORDERS[order]).split() == ["True", "off", "7"]
