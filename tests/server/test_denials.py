"""Which denials get a line in the audit log, and which are only counted."""

from __future__ import annotations

from kafkapy.runtime.clock import ManualClock
from kafkapy.server.authorization import denials
from kafkapy.server.authorization.denials import EVERYBODY, Denials, Denied, LeftOut, Repeated, shown_name


def denied(name: str = "flights", principal: str = "User:alice", host: str = "10.0.0.1") -> Denied:
    return Denied(principal, host, "Read", "Topic", "LITERAL", name)


def test_a_repeated_denial_is_one_line_and_then_its_number() -> None:
    clock = ManualClock()
    found = Denials(clock, 10)
    assert [found.is_new(denied(), "Fetch", 2) for _ in range(1000)] == [True] + [False] * 999
    assert found.is_new(denied("other"), "Fetch", 1)
    clock.advance(9.9)
    assert found.due() == []
    clock.advance(0.1)
    assert found.due() == [Repeated(denied(), "Fetch", 2, 999)]
    assert found.due() == []
    assert found.is_new(denied(), "Fetch", 2)


def test_a_client_that_is_denied_very_many_resources_has_few_lines() -> None:
    clock = ManualClock()
    found = Denials(clock, 10)
    names = [f"topic-{number}" for number in range(5000)]
    assert sum(found.is_new(denied(name), "Fetch", 1) for name in names) == denials.DIFFERENT
    assert found.is_new(denied(principal="User:bob"), "Fetch", 1)
    assert found.is_new(denied(host="10.0.0.2"), "Fetch", 1)
    clock.advance(10)
    assert found.due() == [LeftOut("User:alice", "10.0.0.1", 5000 - denials.DIFFERENT)]


def test_what_is_remembered_has_a_bound(monkeypatch) -> None:
    monkeypatch.setattr(denials, "MOST", 50)
    monkeypatch.setattr(denials, "MOST_CLIENTS", 20)
    clock = ManualClock()
    found = Denials(clock, 10)
    assert sum(found.is_new(denied(principal=f"User:{number}"), "Fetch", 1) for number in range(1000)) == 50
    assert len(found._lines) == 50
    assert len(found._clients) <= 21
    due = found.due(everything=True)
    assert sum(one.times for one in due) == 950
    assert due[-1].principal == EVERYBODY
    assert not found._lines
    assert not found._clients


def test_without_a_window_every_denial_is_a_line() -> None:
    found = Denials(ManualClock(), 0)
    assert all(found.is_new(denied(), "Fetch", 1) for _ in range(200))
    assert found.due(everything=True) == []


def test_very_long_names_are_cut() -> None:
    assert shown_name("x" * 500) == "x" * 500
    assert shown_name("x" * 32_000) == "x" * 500 + "..."
