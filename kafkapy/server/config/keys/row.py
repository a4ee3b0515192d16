"""The rows in the tables of broker settings, and the validators that several tables use.

A row is (name, type, default, validator, importance, flags, meaning). The flags are letters: E for a setting with an
effect in this broker, C for one that can be changed at run time for the cluster or for one broker, B for one that can
be changed for one broker only, I for an internal setting, which lists leave out.
"""

from __future__ import annotations

from typing import Any

from kafkapy.runtime.config_def import NonEmpty, Rule, Validator

Row = tuple[str, str, Any, Validator | None, str, str, str]

HIGH = "HIGH"
MEDIUM = "MEDIUM"
LOW = "LOW"

NON_EMPTY = NonEmpty("non-empty string")
NON_NULL = Rule("non-null string", lambda value: "must not be null" if value is None else None)


def _address_problem(address: str) -> str | None:
    host, _, port = address.strip().rpartition(":")
    if not host or not (port.isascii() and port.isdigit()):
        return f"must be a list of HOST:PORT ({address} is not)"
    return None


def _voters_problem(value: list[str]) -> str | None:
    for voter in value:
        node, at, address = voter.partition("@")
        if not at or not (node.isascii() and node.isdigit()) or _address_problem(address):
            return f"must be a list of ID@HOST:PORT ({voter} is not)"
    return None


def _servers_problem(value: list[str]) -> str | None:
    return next((problem for problem in map(_address_problem, value) if problem), None)


QUORUM_VOTERS = Rule("non-empty list", _voters_problem)
QUORUM_SERVERS = Rule("non-empty list", _servers_problem)
