"""The table of error codes is compared with the facts of Kafka 3.9."""

import csv
import pickle
from pathlib import Path

import pytest

from kafkapy import errors
from kafkapy.errors import Errors, KafkaError

FACTS = Path(__file__).parent / "data" / "facts" / "error-codes-3.9.tsv"


def rows() -> list[dict[str, str]]:
    with FACTS.open(encoding="utf-8") as lines:
        return list(csv.DictReader(lines, delimiter="\t"))


def test_the_table_has_exactly_kafkas_codes() -> None:
    ours = {name: code for name, code in vars(Errors).items() if not name.startswith("_")}
    assert ours == {row["name"]: int(row["code"]) for row in rows()}


def test_the_same_codes_are_retriable_as_in_kafka() -> None:
    retriable = {row["name"] for row in rows() if row["retriable"]}
    assert {errors.name_of(code) for code in range(-1, 200) if errors.is_retriable(code)} == retriable


def test_every_code_has_a_sentence() -> None:
    sentences = [errors.message_of(int(row["code"])) for row in rows()]
    assert all(sentence.endswith(".") and not sentence.startswith("Error code") for sentence in sentences)
    assert len(set(sentences)) == len(sentences)


def test_an_unknown_code_can_be_printed() -> None:
    assert errors.name_of(999) == "UNKNOWN_CODE_999"
    assert errors.message_of(999) == "Error code 999."
    assert not errors.is_retriable(999)


@pytest.mark.parametrize("message", [None, "partition 7 of flights"])
def test_kafka_error_carries_code_and_sentence(message: str | None) -> None:
    error = KafkaError(Errors.NOT_LEADER_OR_FOLLOWER, message)
    assert error.code == 6
    assert error.message == (message or errors.message_of(6))
    assert str(error).startswith("NOT_LEADER_OR_FOLLOWER: ")
    copy = pickle.loads(pickle.dumps(error))
    assert (copy.code, copy.message) == (error.code, error.message)
