"""Tests that settings are sent to workers without importing their libraries."""

import decimal
import importlib
import logging
import pickle
import sys
import types
import warnings

import pytest

from gristmill._workers import settings


class OwnWarning(UserWarning):
    pass


class OwnLogger(logging.Logger):
    pass


@pytest.fixture
def finders(monkeypatch):
    """Remove the finders that wait for imports at the end of the test."""
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])


def sent():
    """Return the settings that would be sent to workers, by module."""
    return {name: pickle.loads(pickled) for name, pickled in settings.read_settings()}


def test_settings_of_unimported_modules_are_not_sent(monkeypatch):
    monkeypatch.delitem(sys.modules, "PIL.ImageFile", raising=False)
    assert "PIL.ImageFile" not in sent()
    ours = types.SimpleNamespace(LOAD_TRUNCATED_IMAGES=True)
    monkeypatch.setitem(sys.modules, "PIL.ImageFile", ours)
    assert sent()["PIL.ImageFile"] is True


def test_settings_are_adopted_when_the_library_is_imported(finders, monkeypatch):
    with decimal.localcontext(prec=7):
        mine = [one for one in settings.read_settings() if one.module == "decimal"]
    monkeypatch.delitem(sys.modules, "decimal")
    settings.adopt(mine)
    assert "decimal" not in sys.modules
    with decimal.localcontext():
        importlib.import_module("decimal")
        assert decimal.getcontext().prec == 7


def test_filters_of_user_categories_are_not_sent():
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "its", OwnWarning, "module", 3)
        warnings.filterwarnings("error", "mine", UserWarning, "module", 3)
        found = sent()["warnings"]
    assert found[0] == ("error", "mine", "UserWarning", "module", 3)
    assert not [one for one in found if one[1] == "its"]


def test_sent_filters_precede_existing_ones(finders):
    with warnings.catch_warnings():
        warnings.simplefilter("error", DeprecationWarning)
        warnings.filterwarnings("ignore", "mine")
        mine = [one for one in settings.read_settings() if one.module == "warnings"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        settings.adopt(mine)
        warnings.warn("mine", DeprecationWarning, stacklevel=1)
        with pytest.raises(DeprecationWarning):
            warnings.warn("other", DeprecationWarning, stacklevel=1)


def test_loggers_of_user_classes_are_not_sent(monkeypatch):
    loggers = logging.root.manager.loggerDict
    monkeypatch.setitem(loggers, "own", OwnLogger("own", logging.DEBUG))
    monkeypatch.setitem(loggers, "plain", logging.Logger("plain", logging.DEBUG))
    _, levels = sent()["logging"]
    assert levels["plain"] == logging.DEBUG and "own" not in levels
