"""Reading the properties of Kafka's clients."""

import pytest

from kafkapy.client.properties import CONSUMER, PRODUCER, ClientProperties

NAMES = (("group.id", "groupid"), ("fetch.size",))


def read(given, **more):
    return ClientProperties(given, names=NAMES, where="f: ", prefix="k.", **more)


def test_a_property_is_found_by_its_present_name_and_messages_have_the_given_one():
    found = read({"groupid": " g ", "fetch.size": None})
    assert (list(found), found.text("group.id"), found.called("group.id")) == (["group.id"], "g", "k.groupid")
    assert "fetch.size" not in found
    with pytest.raises(ValueError, match=r"f: k\.groupid is 'g'; it must be a whole number from 1 to 2147483647"):
        found.number("group.id", 1)


def test_a_property_given_under_two_names_is_refused_whichever_comes_first():
    for given in ({"group.id": "a", "groupid": "b"}, {"groupid": "b", "group.id": "a"}):
        with pytest.raises(ValueError, match=r"f: groupid is the old name of group\.id, which is given too"):
            read(given)


@pytest.mark.parametrize("value", ["", "x", "1_0", "+", "٣", "-1", "2147483648", "1" * 5000])
def test_a_value_that_is_no_number_in_the_range_is_refused(value):
    with pytest.raises(ValueError, match=r"f: k\.fetch\.size is "):
        read({"fetch.size": value}).number("fetch.size", 7)


def test_a_property_that_is_not_given_has_its_default():
    found = read({})
    assert found.number("fetch.size", 7) == 7
    assert found.seconds("linger.ms", 1500) == 1.5
    assert found.word("acks", {"all": -1}, "all") == -1
    assert found.flag("enable.idempotence", True)
    with pytest.raises(ValueError, match=r"k\.bootstrap\.servers is missing; add it"):
        found.servers()


def test_a_name_is_honoured_refused_without_effect_or_unknown(caplog):
    def check(**given):
        read({name.replace("_", "."): "1" for name in given}).check_names(
            honoured={"fetch.size"}, refused={"group.id": "why"}, without_effect=CONSUMER, client="it"
        )

    check(fetch_size=1, check_crcs=1)
    assert [record.getMessage() for record in caplog.records] == ["f: k.check.crcs has no effect"]
    with pytest.raises(ValueError, match=r"f: k\.groupid cannot be set: why"):
        check(groupid=1)
    with pytest.raises(ValueError, match=r"f: k\.fetch\.sice is not a property of it; did you mean k\.fetch\.size\?"):
        check(fetch_sice=1)


def test_consumer_and_producer_names_are_those_of_kafka():
    assert {"group.id", "client.id", "security.protocol"} < CONSUMER - {"acks"}
    assert {"acks", "client.id", "transactional.id"} < PRODUCER - {"group.id"}
