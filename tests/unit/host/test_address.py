"""The address of a pool: one process listens, and no other file is harmed."""

import os
import socket

import pytest

import gristmill
from gristmill import host
from gristmill._host.address import Address


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "pool")


def test_stale_socket_is_replaced_and_a_live_one_is_not(path):
    stale = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with stale:
        stale.bind(path)
    address = Address(path)
    assert address.connect() is None
    with address.listen():
        assert address.listen() is None
        address.connect().close()
    address.remove()
    assert not os.path.exists(path)


def test_file_at_the_path_of_a_socket_is_kept(path):
    with open(path, "w") as file:
        file.write("text")
    loader = gristmill.load(range(3), num_epochs=1, worker_count=1)
    shared = host.share(loader, name=path, rank=0, ranks=1)
    with pytest.raises(FileExistsError, match="is another file"):
        next(shared)
    with open(path) as file:
        assert file.read() == "text"


def test_path_in_missing_folder_raises_error_with_remedy(tmp_path):
    loader = gristmill.load(range(3), num_epochs=1, worker_count=1)
    name = str(tmp_path / "missing" / "pool")
    shared = host.share(loader, name=name, rank=0, ranks=1)
    text = r"folder must exist, but '.*/missing' does not .* Create it, or pass a name"
    with pytest.raises(FileNotFoundError, match=text):
        next(shared)


def test_pool_of_another_user_raises_permission_error(path, monkeypatch):
    address = Address(path)
    with address.listen():
        monkeypatch.setattr(os, "getuid", lambda: 12345)
        with pytest.raises(PermissionError, match="must belong to user 12345, who"):
            address.connect()
