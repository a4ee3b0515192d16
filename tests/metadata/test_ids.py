"""Ids of topics and clusters, and their text."""

import pytest

from kafkapy.metadata.ids import ZERO_ID, decode_id, encode_id, new_cluster_id, new_id


def test_text_of_an_id_is_what_kafka_writes() -> None:
    assert encode_id(ZERO_ID) == "AAAAAAAAAAAAAAAAAAAAAA"
    assert encode_id(bytes(range(16))) == "AAECAwQFBgcICQoLDA0ODw"
    assert encode_id(b"\xff" * 16) == "_____________________w"


def test_ids_survive_their_text() -> None:
    for _ in range(200):
        topic_id = new_id()
        assert decode_id(encode_id(topic_id)) == topic_id
        assert not encode_id(topic_id).startswith("-")
        assert topic_id[6] >> 4 == 4


def test_a_cluster_id_has_22_characters() -> None:
    assert len(new_cluster_id()) == 22
    assert new_cluster_id() != new_cluster_id()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "A" * 21,
        "A" * 23,
        "A" * 21 + "B",
        "A" * 21 + "+",
        "A" * 21 + "ü",
        "AAAAAAAAAAAAAAAAAAAAAA==",
        "a b" * 7 + "c",
    ],
)
def test_invalid_text_of_an_id_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not an id"):
        decode_id(text)
