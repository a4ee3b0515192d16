"""Dynamic passwords are encrypted and decrypted as by Apache Kafka."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkapy.security.passwords import CIPHERS, KEY_FACTORIES, KEY_LENGTHS, PasswordEncoder, PasswordUnreadable

GOLDEN = Path(__file__).parents[1] / "data" / "passwords" / "kafka-3.9.1.jsonl"
CASES = [json.loads(line) for line in GOLDEN.read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize("case", CASES)
def test_a_password_that_kafka_encrypted_is_decrypted(case: dict[str, str]) -> None:
    assert PasswordEncoder(case["secret"]).decode(case["encoded"]) == case["password"]
    with pytest.raises(PasswordUnreadable):
        PasswordEncoder("another").decode(case["encoded"])


@settings(max_examples=20, deadline=None)
@given(
    st.text(min_size=1),
    st.text(),
    st.sampled_from(CIPHERS),
    st.sampled_from(KEY_FACTORIES),
    st.sampled_from(KEY_LENGTHS),
)
def test_every_password_comes_back(secret: str, password: str, cipher: str, factory: str, length: int) -> None:
    encoder = PasswordEncoder(secret, key_factory=factory, cipher=cipher, key_length=length, iterations=1024)
    text = encoder.encode(password)
    assert PasswordEncoder(secret).decode(text) == password
    assert text != encoder.encode(password)
    if len(password) > 3:
        assert password not in text


def test_what_is_written_has_the_fields_of_kafka() -> None:
    ours = PasswordEncoder("secret").encode("x")
    fields = [{part.partition(":")[0] for part in text.split(",")} for text in (ours, CASES[0]["encoded"])]
    assert fields[0] == fields[1]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "plain",
        CASES[0]["encoded"].replace("iterations:4096", "iterations:-1"),
        CASES[0]["encoded"].replace("iterations:4096", "iterations:99999999999"),
        CASES[0]["encoded"].replace("AES/CBC", "DES/CBC"),
        CASES[0]["encoded"].replace("passwordLength:17", "passwordLength:16"),
        CASES[0]["encoded"].replace("salt:", "salt:?"),
        CASES[0]["encoded"].replace("encryptedPassword:", "encryptedPassword:AA"),
        CASES[0]["encoded"].replace("initializationVector", "vector"),
    ],
)
def test_a_malformed_text_is_refused_without_showing_it(text: str) -> None:
    with pytest.raises(PasswordUnreadable) as refused:
        PasswordEncoder("secret").decode(text)
    assert "keystore-password" not in str(refused.value)
