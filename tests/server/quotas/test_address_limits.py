"""The quota of a host name applies to the name's addresses as soon as it can be resolved."""

import socket

import pytest

from kafkapy.metadata.quotas import CONNECTIONS, DEFAULT
from kafkapy.runtime.threads import NoThread
from kafkapy.server.quotas.address_limits import AddressLimits


def test_a_name_without_an_address_is_looked_up_until_it_has_one(monkeypatch, caplog):
    addresses, applied, waiting = {}, [], []

    def look_up(name, *_, **__):
        if name not in addresses:
            raise socket.gaierror(-2, "Name or service not known")
        return [(0, 0, 0, "", (addresses[name], 0))]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    limits = AddressLimits(lambda default, by_address: applied.append((default, dict(by_address))), waiting.append)

    def run():
        while waiting:
            waiting.pop()()
        return applied[-1]

    limits.change(DEFAULT, {CONNECTIONS: 5.0})
    limits.change("late.invalid", {CONNECTIONS: 2.0})
    limits.change("never.invalid", {CONNECTIONS: 2.0})
    for _ in range(3):
        assert run() == (5, {})
        limits.resolve_missing()
        limits.resolve_missing()
        assert len(waiting) == 1  # one look-up for all names; the next begins only when it has ended
    assert caplog.text.count("late.invalid is not applied") == 1
    addresses["late.invalid"] = "192.0.2.2"
    assert run() == (5, {"192.0.2.2": 2})
    limits.change("never.invalid", {})
    limits.resolve_missing()
    assert not waiting


def test_a_name_is_looked_up_when_there_is_a_thread_again(monkeypatch):
    monkeypatch.setattr(socket, "getaddrinfo", lambda name, *_, **__: [(0, 0, 0, "", ("192.0.2.2", 0))])
    applied, waiting, is_short = [], [], True

    def later(call):
        if is_short:
            raise NoThread("kafkapy-disk-0", "can't start new thread")
        waiting.append(call)

    limits = AddressLimits(lambda default, by_address: applied.append(dict(by_address)), later)
    limits.change("late.invalid", {CONNECTIONS: 2.0})
    with pytest.raises(NoThread):
        limits.resolve_missing()
    is_short = False
    limits.resolve_missing()
    waiting.pop()()
    assert applied[-1] == {"192.0.2.2": 2}
