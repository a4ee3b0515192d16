"""Which mechanism a client uses, from Kafka's settings and librdkafka's."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from kafkapy.security.sasl.client import client_mechanism
from kafkapy.security.sasl.errors import SaslSettingError
from kafkapy.security.sasl.jaas import OAUTH_MODULE, PLAIN_MODULE, SCRAM_MODULE


def claims_of(message: bytes) -> dict[str, Any]:
    part = message.decode().split(".")[1]
    found: dict[str, Any] = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    return found


@pytest.mark.parametrize(
    "settings",
    [
        {"sasl.mechanism": "PLAIN", "sasl.username": "a", "sasl.password": "b"},
        {"sasl.mechanisms": "plain", "sasl.username": "a", "sasl.password": "b"},
        {"sasl.mechanism": "PLAIN", "sasl.jaas.config": f'{PLAIN_MODULE} required username="a" password="b";'},
    ],
)
def test_plain(settings: dict[str, str]) -> None:
    client = client_mechanism(settings, "host")
    assert (client.name, client.initial()) == ("PLAIN", b"\0a\0b")


def test_scram_with_a_name_that_has_to_be_escaped() -> None:
    line = f'{SCRAM_MODULE} required username="a,=" password="b" tokenauth="true";'
    client = client_mechanism({"sasl.mechanism": "SCRAM-SHA-512", "sasl.jaas.config": line}, "host")
    assert client.name == "SCRAM-SHA-512"
    assert client.initial().startswith(b"n,,n=a=2C=3D,r=")
    assert client.initial().endswith(b",tokenauth=true")


def test_tokens_without_a_signature_of_kafka_and_librdkafka() -> None:
    line = (
        f'{OAUTH_MODULE} required unsecuredLoginStringClaim_sub="alice" unsecuredLoginListClaim_scope="|a|b" '
        'unsecuredLoginNumberClaim_n="1.5" unsecuredLoginExtension_traceId="7";'
    )
    kafka = client_mechanism({"sasl.mechanism": "OAUTHBEARER", "sasl.jaas.config": line}, "host")
    found = claims_of(kafka.initial())
    assert (found["sub"], found["scope"], found["n"]) == ("alice", ["a", "b"], 1.5)
    assert found["exp"] - found["iat"] == 3600
    assert b"\x01traceId=7\x01" in kafka.initial()
    rdkafka = {"sasl.mechanisms": "OAUTHBEARER", "sasl.oauthbearer.config": "principal=bob lifeSeconds=10"}
    assert claims_of(client_mechanism(rdkafka, "host").initial())["sub"] == "bob"


def test_a_token_from_a_file_is_read_at_every_login(tmp_path: Path) -> None:
    path = tmp_path / "token"
    settings = {"sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.token.endpoint.url": path.as_uri()}
    for token in ("T1", "T2"):
        path.write_text(f"{token}\n")
        assert client_mechanism(settings, "host").initial() == f"n,,\x01auth=Bearer {token}\x01\x01".encode()


def test_a_token_of_a_callback() -> None:
    settings = {
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.config": "c",
        "oauth_cb": lambda config: (f"T-{config}", 1.0),
    }
    assert b"Bearer T-c" in client_mechanism(settings, "host").initial()


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({}, "GSSAPI.*PLAIN"),
        ({"sasl.mechanism": "GSSAPI"}, "GSSAPI.*PLAIN"),
        ({"sasl.mechanism": "SCRAM-SHA-1"}, "SCRAM-SHA-1 is not supported"),
        ({"sasl.mechanism": "PLAIN"}, "needs a user"),
        ({"sasl.mechanism": "PLAIN", "sasl.username": "a"}, "needs a user"),
        ({"sasl.mechanism": "PLAIN", "sasl.jaas.config": "x.JndiLoginModule required;"}, "login module"),
        ({"sasl.mechanism": "OAUTHBEARER"}, "token.endpoint.url"),
        ({"sasl.mechanism": "OAUTHBEARER", "sasl.jaas.config": f"{PLAIN_MODULE} required;"}, "OAuthBearerLoginModule"),
        ({"sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.token.endpoint.url": "ftp://x/"}, "http"),
        ({"sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.token.endpoint.url": "http://x/"}, "clientId"),
        ({"sasl.mechanism": "OAUTHBEARER", "sasl.login.callback.handler.class": "com.Mine"}, "com.Mine"),
    ],
)
def test_invalid_settings_are_refused_with_a_sentence(settings: dict[str, str], why: str) -> None:
    with pytest.raises(SaslSettingError, match=why):
        client_mechanism(settings, "host")
