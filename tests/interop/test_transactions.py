"""Transactions of every client that supports them are read by every client."""

import pytest

from tests.harness.clients.base import ClientError, Received, Record
from tests.harness.clients.confluent import Confluent
from tests.harness.clients.registry import KINDS, Clients
from tests.harness.waiting import eventually

PARTITIONS = 3
WRITERS = [kind.name for kind in KINDS.values() if "transact" in kind.abilities]
# (first, second): every client is fenced by another kind, and fences one. kafka-python is never fenced: it would get a
# new epoch without reporting that records are lost, and fence the other client in turn.
FENCINGS = [pair for pair in zip(WRITERS, WRITERS[1:] + WRITERS[:1], strict=True) if pair[0] != "kafka-python"]
READERS = [kind.name for kind in KINDS.values() if "read_until" in kind.abilities]
# INVALID_PRODUCER_EPOCH, INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, and librdkafka's own codes: fatal, fenced
FENCED = {47, 49, 90, -144, -150}


@pytest.fixture
def admin(coordinated: Clients) -> Confluent:
    client = coordinated["confluent-kafka"]
    assert isinstance(client, Confluent)
    return client


def some(word: str, count: int = 7) -> list[Record]:
    """Return records for every partition."""
    return [Record(b"%s %d" % (word.encode(), n), key=b"k", partition=n % PARTITIONS) for n in range(count)]


def values(read: list[Received]) -> dict[int, list[bytes | None]]:
    """Return the values read from each partition, in order."""
    found: dict[int, list[bytes | None]] = {p: [] for p in range(PARTITIONS)}
    for each in read:
        found[each.partition].append(each.value)
    return found


def values_of(*sent: list[Record]) -> dict[int, list[bytes | None]]:
    """Return the values sent to each partition, in order."""
    return {p: [each.value for records in sent for each in records if each.partition == p] for p in range(PARTITIONS)}


def end_with(admin: Confluent, topic: str) -> list[Record]:
    """Write the last records for readers, outside of transactions."""
    last = [Record(b"last", partition=p) for p in range(PARTITIONS)]
    admin.produce(topic, last)
    return last


class Written:
    """Topics with committed and aborted transactions, by writer. Each is written at its first use, and read by many
    tests."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients
        self._done: dict[str, tuple[str, dict[int, list[bytes | None]], dict[int, list[bytes | None]]]] = {}

    def __call__(self, writer: str) -> tuple[str, dict[int, list[bytes | None]], dict[int, list[bytes | None]]]:
        """Return (topic, its committed values, all written values)."""
        if writer not in self._done:
            topic, client, admin = f"transactions-{writer}", self._clients[writer], self._clients["confluent-kafka"]
            assert isinstance(admin, Confluent)
            admin.create_topic(topic, PARTITIONS)
            client.open_transactional(topic)
            sent = [some(word) for word in ("first", "regretted", "second", "given up", "third")]
            for records in sent:
                client.transact(topic, topic, records, "abort" if records in (sent[1], sent[3]) else "commit")
            client.transact(topic, topic, some("in two", 2), "open")
            client.transact(topic, topic, some("steps", 2), "commit")
            client.close_transactional(topic)
            sent += [some("in two", 2), some("steps", 2), end_with(admin, topic)]
            committed = [records for records in sent if records not in (sent[1], sent[3])]
            self._done[writer] = topic, values_of(*committed), values_of(*sent)
        return self._done[writer]


@pytest.fixture(scope="module")
def written(coordinated: Clients) -> Written:
    return Written(coordinated)


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("writer", WRITERS)
def test_read_committed_clients_get_exactly_the_committed_records(
    writer: str, reader: str, written: Written, coordinated: Clients
) -> None:
    topic, committed, everything = written(writer)
    client = coordinated[reader]
    assert values(client.read_until(topic, range(PARTITIONS), b"last", committed=True)) == committed
    if reader == writer:
        assert values(client.read_until(topic, range(PARTITIONS), b"last", committed=False)) == everything


@pytest.mark.parametrize("writer", WRITERS)
def test_an_open_transaction_holds_back_what_follows_it(
    writer: str, coordinated: Clients, admin: Confluent, topic_name: str
) -> None:
    client = coordinated[writer]
    admin.create_topic(topic_name, 1)
    admin.produce(topic_name, [Record(b"before", partition=0)])
    client.open_transactional(topic_name)
    client.transact(topic_name, topic_name, [Record(b"inside", partition=0)], "open")
    admin.produce(topic_name, [Record(b"after", partition=0)])
    assert admin.stable_offsets(topic_name, [0]) == {0: 1}
    assert admin.watermarks(topic_name, [0]) == {0: (0, 3)}
    client.finish(topic_name, "commit")
    client.close_transactional(topic_name)
    eventually(lambda: admin.stable_offsets(topic_name, [0]) == {0: 4})  # the marker is written after the response
    read = admin.read_until(topic_name, [0], b"after", committed=True)
    assert [each.value for each in read] == [b"before", b"inside", b"after"]


@pytest.mark.parametrize(("first", "second"), FENCINGS)
def test_a_second_instance_fences_the_first(
    first: str, second: str, coordinated: Clients, admin: Confluent, topic_name: str
) -> None:
    zombie, successor = coordinated[first], coordinated[second]
    admin.create_topic(topic_name, PARTITIONS)
    zombie.open_transactional(topic_name)
    zombie.transact(topic_name, topic_name, some("of the zombie"), "open")
    successor.open_transactional(topic_name)
    with pytest.raises(ClientError) as refused:
        zombie.transact(topic_name, topic_name, some("after its end"), "commit")
    assert refused.value.code in FENCED, refused.value
    successor.transact(topic_name, topic_name, some("of the successor"), "commit")
    zombie.close_transactional(topic_name)
    successor.close_transactional(topic_name)
    last = end_with(admin, topic_name)
    read = admin.read_until(topic_name, range(PARTITIONS), b"last", committed=True)
    assert values(read) == values_of(some("of the successor"), last)


@pytest.mark.parametrize("writer", WRITERS)
def test_results_and_offsets_are_committed_together_or_not_at_all(
    writer: str, coordinated: Clients, admin: Confluent, topic_name: str
) -> None:
    client, target = coordinated[writer], f"{topic_name}-target"
    admin.create_topic(topic_name, PARTITIONS)
    admin.create_topic(target, PARTITIONS)
    client.open_transactional(topic_name)
    sent = some("value", 9)
    admin.produce(topic_name, sent)
    regretted = client.copy_in_transaction(topic_name, topic_name, topic_name, target, 9, "abort")
    assert admin.committed(topic_name, topic_name) == {}
    kept = client.copy_in_transaction(topic_name, topic_name, topic_name, target, 9, "commit")
    assert values(kept) == values(regretted) == values_of(sent)
    eventually(lambda: admin.committed(topic_name, topic_name) == {0: 3, 1: 3, 2: 3})
    more = some("other", 3)
    admin.produce(topic_name, more)
    assert values(client.copy_in_transaction(topic_name, topic_name, topic_name, target, 3, "commit")) == values_of(
        more
    )
    eventually(lambda: admin.committed(topic_name, topic_name) == {0: 4, 1: 4, 2: 4})
    client.close_transactional(topic_name)
    last = end_with(admin, target)
    read = admin.read_until(target, range(PARTITIONS), b"last", committed=True)
    upper = [Record((each.value or b"").upper(), partition=each.partition) for each in [*sent, *more]]
    assert values(read) == values_of(upper, last)


@pytest.mark.parametrize("writer", WRITERS)
def test_a_transaction_that_takes_too_long_is_aborted(
    writer: str, coordinated: Clients, admin: Confluent, topic_name: str
) -> None:
    client = coordinated[writer]
    admin.create_topic(topic_name, PARTITIONS)
    client.open_transactional(topic_name, timeout_ms=1000)
    client.transact(topic_name, topic_name, some("too slow"), "open")
    last = end_with(admin, topic_name)
    read = admin.read_until(
        topic_name, range(PARTITIONS), b"last", committed=True
    )  # can be read as soon as the transaction is aborted
    assert values(read) == values_of(last)
    with pytest.raises(ClientError) as refused:
        client.finish(topic_name, "commit")
    assert refused.value.code in FENCED, refused.value
    client.close_transactional(topic_name)
