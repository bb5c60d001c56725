"""Workers die among bad records; each bad record is still counted and logged once."""

import pytest

from faults.scripts import run

pytestmark = pytest.mark.multiprocess


@pytest.mark.parametrize("batch", [0, 4])
@pytest.mark.parametrize("on_error", ["skip", "substitute"])
def test_deaths_neither_hide_nor_repeat_bad_records(on_error, batch):
    run("faults/kills_with_bad_records/kills_among_bad_records", on_error, batch)
