"""AlterUserScramCredentials and DescribeUserScramCredentials, and the delegation token APIs, which are refused."""

from typing import Any

import pytest

from kafkapy.errors import Errors
from kafkapy.protocol import apis
from kafkapy.security.sasl.scram import new_credential, salted_password
from tests.harness.wire import Wire

SHA_256, SHA_512 = 1, 2
SALT = b"0123456789abcdef"
ALTER, DESCRIBE = apis.ALTER_USER_SCRAM_CREDENTIALS, apis.DESCRIBE_USER_SCRAM_CREDENTIALS
SALTED = salted_password("SCRAM-SHA-256", "secret", SALT, 4096)


def set_(name: str, mechanism: int = SHA_256, iterations: int = 4096, **more: bytes) -> Any:
    fields = {"salt": SALT, "salted_password": SALTED, **more}
    return ALTER.Request.Upsertions(name=name, mechanism=mechanism, iterations=iterations, **fields)


def drop(name: str, mechanism: int = SHA_256) -> Any:
    return ALTER.Request.Deletions(name=name, mechanism=mechanism)


def alter(wire: Wire, *entries: Any) -> dict[str, tuple[int, str | None]]:
    upsertions = [one for one in entries if isinstance(one, ALTER.Request.Upsertions)]
    deletions = [one for one in entries if isinstance(one, ALTER.Request.Deletions)]
    response = wire.call(ALTER, 0, upsertions=upsertions, deletions=deletions)
    results = {one.user: (one.error_code, one.error_message) for one in response.results}
    assert len(results) == len(response.results)
    return results


def describe(wire: Wire, *names: str) -> dict[str, Any]:
    make = DESCRIBE.Request.Users
    response = wire.call(DESCRIBE, 0, users=[make(name=name) for name in names] or None)
    assert response.error_code == Errors.NONE
    return {
        one.user: one.error_code or {info.mechanism: info.iterations for info in one.credential_infos}
        for one in response.results
    }


def test_credentials_are_set_described_and_deleted(wire: Wire) -> None:
    assert alter(wire, set_("alice"), set_("alice", SHA_512, 8192), set_("bob")) == {
        "alice": (Errors.NONE, None),
        "bob": (Errors.NONE, None),
    }
    assert describe(wire) == {"alice": {SHA_256: 4096, SHA_512: 8192}, "bob": {SHA_256: 4096}}
    assert alter(wire, drop("alice"), set_("bob", iterations=16384), drop("bob", SHA_512))["alice"] == (
        Errors.NONE,
        None,
    )
    assert describe(wire, "alice", "bob") == {"alice": {SHA_512: 8192}, "bob": {SHA_256: 4096}}
    alter(wire, drop("alice", SHA_512), drop("bob"))
    assert describe(wire) == {}


def test_what_is_stored_fits_the_password(wire: Wire, broker: Any) -> None:
    alter(wire, set_("carol"))
    found = broker.services.users.find("carol", "SCRAM-SHA-256")
    assert found._replace(salt=SALT) == found
    other = new_credential("SCRAM-SHA-256", "secret")
    assert found.stored_key not in (SALTED, other.stored_key)
    alter(wire, drop("carol"))


@pytest.mark.parametrize(
    ("entry", "error"),
    [
        (set_(""), Errors.UNACCEPTABLE_CREDENTIAL),
        (drop(""), Errors.UNACCEPTABLE_CREDENTIAL),
        (set_("dave", 0), Errors.UNSUPPORTED_SASL_MECHANISM),
        (set_("dave", 3), Errors.UNSUPPORTED_SASL_MECHANISM),
        (drop("dave", -1), Errors.UNSUPPORTED_SASL_MECHANISM),
        (set_("dave", iterations=4095), Errors.UNACCEPTABLE_CREDENTIAL),
        (set_("dave", iterations=16385), Errors.UNACCEPTABLE_CREDENTIAL),
        (set_("dave", salt=b""), Errors.UNACCEPTABLE_CREDENTIAL),
        (set_("dave", salted_password=b""), Errors.UNACCEPTABLE_CREDENTIAL),
        (drop("dave"), Errors.DUPLICATE_RESOURCE),
        (drop("dave", SHA_512), Errors.RESOURCE_NOT_FOUND),
    ],
)
def test_a_user_with_an_invalid_entry_is_not_changed_and_the_others_are(wire: Wire, entry: Any, error: int) -> None:
    results = alter(wire, set_("dave"), entry, set_("erin"))
    assert results[entry.name][0] == error
    assert results[entry.name][1]
    assert results["erin"] == (Errors.NONE, None)
    expected = {"erin": {SHA_256: 4096}}
    assert describe(wire) == (expected if entry.name else {**expected, "dave": {SHA_256: 4096}})
    alter(wire, drop("dave"), drop("erin"))


def test_users_that_cannot_be_described(wire: Wire) -> None:
    alter(wire, set_("frank"))
    assert describe(wire, "frank", "nobody", "", "twice", "twice") == {
        "frank": {SHA_256: 4096},
        "nobody": Errors.RESOURCE_NOT_FOUND,
        "": Errors.RESOURCE_NOT_FOUND,
        "twice": Errors.DUPLICATE_RESOURCE,
    }
    alter(wire, drop("frank"))


@pytest.mark.parametrize(
    ("api", "fields"),
    [
        (apis.CREATE_DELEGATION_TOKEN, {"renewers": [], "max_lifetime_ms": -1}),
        (apis.RENEW_DELEGATION_TOKEN, {"hmac": b"h", "renew_period_ms": 1}),
        (apis.EXPIRE_DELEGATION_TOKEN, {"hmac": b"h", "expiry_time_period_ms": 1}),
        (apis.DESCRIBE_DELEGATION_TOKEN, {"owners": None}),
    ],
)
def test_there_are_no_delegation_tokens(wire: Wire, api: apis.Api, fields: dict[str, Any]) -> None:
    for version in range(api.min_version, api.max_version + 1):
        more = (
            {"owner_principal_type": None, "owner_principal_name": None} if "renewers" in fields and version > 2 else {}
        )
        response = wire.call(api, version, **fields, **more)
        assert response.error_code == Errors.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
