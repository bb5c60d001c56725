"""Payloads of units, from the commit until their outputs are delivered."""

from gristmill._pool.lanes import Payloads


class ClosesItsOwner:
    """Is collected while a method of its owner runs, and closes that."""

    def __init__(self, payloads):
        self.payloads = payloads

    def __del__(self):
        self.payloads.clear()


def test_payloads_can_be_cleared_while_one_is_dropped():
    payloads = Payloads()
    payloads.add(0, 1, 1, ClosesItsOwner(payloads))
    payloads.add(0, 2, 2, b"last")
    assert payloads.payload_of(0, 2, is_last=True) == b"last"


def test_payload_that_was_added_once_stays():
    payloads = Payloads()
    assert payloads.add_once(0, 1, 7, b"first") == b"first"
    assert payloads.add_once(0, 1, 7, b"second") == b"first"
    assert payloads.payload_of(0, 1, is_last=True) == b"first"
