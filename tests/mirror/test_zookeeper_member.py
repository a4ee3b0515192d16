"""A member of a group in ZooKeeper, whose connector releases partitions in its own thread."""

import logging
import threading
import time

import pytest
from kazoo.exceptions import ConnectionLoss
from kazoo.handlers.threading import KazooTimeoutError

from kafkapy.client.administration.admin import LATEST
from kafkapy.client.administration.descriptions import FoundOffset
from kafkapy.client.cluster import Topic
from kafkapy.client.original.consuming.streams import Chunk, OwnedPartition, Stream
from kafkapy.client.original.filters import Whitelist
from kafkapy.errors import Errors, KafkaError
from kafkapy.mirror import zookeeper_member
from kafkapy.mirror.kafka_07_member import Kafka07Member
from kafkapy.mirror.member import NotCommitted
from kafkapy.mirror.source_settings import read_source
from kafkapy.mirror.zookeeper_member import ZooKeeperMember
from kafkapy.record.batch import build
from tests.harness.waiting import eventually

PATIENCE_S = 20.0
BATCH = memoryview(build([(0, None, b"x", ())] * 10))


class FakeConnector:
    def __init__(self, properties):
        self.settings = read_source(properties | {"zookeeper.connect": "z:1"}).settings
        self.stream = Stream()
        self.committed = []
        self.held = {}
        self.on_claim = None
        self.waits_for = ""

    def create_message_streams_by_filter(self, topics, *, rebalance_listener, on_claim):
        self.on_claim = on_claim
        return [self.stream]

    def claim(self, number, offset):
        """Give the member a partition of which it has read nothing yet."""
        self.held["t", number] = owned = OwnedPartition(("t", str(number)), self.stream, offset)
        self.on_claim([owned])

    def seek(self, where, offset):
        """Set the position. Unless `offset` is None, put a chunk into the stream, which can be read at once."""
        before = self.held[where]
        if before.revoked:
            return None
        self.stream.revoke([before])
        self.held[where] = owned = OwnedPartition(before.partition, self.stream, before.consumed)
        if offset is not None:
            self.stream.put(Chunk(owned, BATCH, offset))
        return owned

    def commit_offsets(self, offsets):
        self.committed.append(dict(offsets))

    def shutdown(self):
        self.stream.close()


class Told:
    def __init__(self, member):
        self.member = member
        self.released = []
        self.lost = []
        self.taken = []

    def on_taken(self, partitions):
        self.taken += partitions
        for where in partitions:
            self.member.seek(where, None)

    def before_release(self, partitions):
        self.released += partitions

    def on_lost(self, partitions):
        self.lost += partitions


def member_that(monkeypatch, *, seeks):
    monkeypatch.setattr(zookeeper_member, "ConsumerConnector", lambda given: FakeConnector({"group.id": "g"}))
    new_member = ZooKeeperMember(
        read_source({"zookeeper.connect": "z:1", "group.id": "g"}), Whitelist("t"), seeks=seeks
    )
    new_member.listener = Told(new_member)
    new_member.open(new_member.listener)
    return new_member


@pytest.fixture
def member(monkeypatch):
    return member_that(monkeypatch, seeks=False)


@pytest.fixture
def seeking(monkeypatch):
    return member_that(monkeypatch, seeks=True)


def owned_by(member, number=0):
    """Return a partition that the member owns, with one chunk to read."""
    stream = member._connector.stream
    owned = OwnedPartition(("t", str(number)), stream, 0)
    stream.put(Chunk(owned, BATCH, 3))
    return owned


def test_pieces_have_the_offset_after_their_records(member):
    owned_by(member, 0)
    owned_by(member, 1)
    pieces = member.poll(5)
    assert [(piece.where, piece.start, piece.after) for piece in pieces] == [(("t", 0), 3, 10), (("t", 1), 3, 10)]
    assert list(member.poll(0.1)) == []


def test_partitions_are_released_when_the_polling_thread_has_finished_with_them(member):
    owned = owned_by(member)
    member.poll(5)
    owned.stream.revoke([owned])
    thread = threading.Thread(target=member.before_release, args=([("t", 0)],))
    thread.start()
    deadline = time.monotonic() + PATIENCE_S
    while not member.listener.released:
        assert thread.is_alive()
        assert time.monotonic() < deadline
        member.poll(0.01)
    thread.join(PATIENCE_S)
    assert not thread.is_alive()
    assert (member.listener.released, member.listener.lost) == ([("t", 0)], [])


def test_a_partition_about_to_be_released_is_not_reported_lost(member):
    owned = owned_by(member)
    member.poll(5)
    owned.stream.revoke([owned])
    member.poll(0)  # the connector's thread has not called `before_release` yet
    assert member.listener.lost == []


def test_partitions_of_an_expired_session_are_reported_lost_even_if_owned_again(member):
    """Otherwise the group's offset would go back to the one before other members owned the partition."""
    owned = owned_by(member)
    member.poll(5)
    owned.stream.revoke([owned], lost=True)
    again = owned_by(member)
    assert [piece.where for piece in member.poll(5)] == [("t", 0)]
    assert (member.listener.released, member.listener.lost) == ([], [("t", 0)])
    assert not again.revoked
    member.poll(0.1)
    assert member.listener.lost == [("t", 0)]


def test_a_thread_that_waits_for_the_polling_thread_continues_when_the_member_is_closed(member):
    thread = threading.Thread(target=member.before_release, args=([("t", 0)],))
    thread.start()
    member.close()
    thread.join(PATIENCE_S)
    assert not thread.is_alive()


def test_a_failed_commit_raises_not_committed(member, monkeypatch):
    member.commit({("t", 0): 7})
    assert member._connector.committed == [{("t", 0): 7}]

    def refuse(offsets):
        raise zookeeper_member.KazooTimeoutError

    monkeypatch.setattr(member._connector, "commit_offsets", refuse)
    with pytest.raises(NotCommitted, match="KazooTimeoutError"):
        member.commit({("t", 0): 8})


def test_a_claimed_partition_is_reported_and_read_from_the_given_offset(seeking):
    seeking._connector.claim(0, 7)
    assert seeking.poll(0.01) == []
    assert seeking.listener.taken == [("t", 0)]
    assert seeking.position(("t", 0)) == 7
    seeking.seek(("t", 0), 3)
    assert [piece.start for piece in seeking.poll(0)] == [3]
    assert seeking.position(("t", 0)) == 7


def test_records_read_before_a_seek_are_discarded(seeking):
    seeking._connector.claim(0, 0)
    seeking.poll(0.01)
    seeking.seek(("t", 0), 3)
    seeking.seek(("t", 0), None)
    assert seeking.poll(0.01) == []
    seeking.seek(("t", 0), 5)
    assert [piece.start for piece in seeking.poll(5)] == [5]
    assert seeking.listener.lost == []


def test_a_partition_claimed_again_before_its_loss_was_noticed_is_reported_lost_and_taken(seeking):
    connector = seeking._connector
    connector.claim(0, 0)
    seeking.poll(0.01)
    connector.stream.revoke([connector.held["t", 0]], lost=True)
    connector.claim(0, 9)
    seeking.seek(("t", 0), 3)  # the caller does not know of the loss yet
    assert seeking.poll(0.01) == []
    assert (seeking.listener.taken, seeking.listener.lost) == ([("t", 0)] * 2, [("t", 0)])
    assert seeking.position(("t", 0)) == 9
    seeking.seek(("t", 0), 9)
    assert [piece.start for piece in seeking.poll(5)] == [9]


def test_a_partition_that_is_no_longer_owned_is_not_read(seeking):
    connector = seeking._connector
    connector.claim(0, 0)
    seeking.poll(0.01)
    connector.stream.revoke([connector.held["t", 0]], lost=True)
    seeking.seek(("t", 0), 3)
    assert seeking.poll(0.01) == []
    assert seeking.listener.lost == [("t", 0)]
    seeking.seek(("t", 0), 3)
    assert seeking.poll(0.01) == []


@pytest.fixture
def failures():
    """Return the errors of the first look-ups of a topic's partitions in ZooKeeper."""
    return [KazooTimeoutError()]


@pytest.fixture
def of_07(failures):
    """Return a member of a group in Kafka 0.7."""
    connector = FakeConnector({"group.id": "g"})

    def partitions_of(topic):
        if failures:
            raise failures.pop()
        return ["8-0", "9-0"]

    connector.partitions_of = partitions_of
    settings = read_source({"zookeeper.connect": "z:1", "group.id": "g"})
    new_member = Kafka07Member(settings, Whitelist("t"), connector)
    new_member.open(Told(new_member))
    return new_member


def test_records_whose_partition_cannot_be_numbered_yet_are_returned_later_in_their_order(of_07):
    stream = of_07._connector.stream
    owned = OwnedPartition(("t", "9-0"), stream, 0)
    for start in (0, 100):
        stream.put(Chunk(owned, BATCH, start, start + 100))
    assert of_07.poll(0) == []
    pieces = [(piece.where, piece.start, piece.after) for piece in of_07.poll(0)]
    assert pieces == [(("t", 1), 0, 100), (("t", 1), 100, 200)]


def test_a_loss_of_zookeeper_is_logged_once_and_so_is_its_end(of_07, failures, caplog, monkeypatch):
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(zookeeper_member, "POLL_S", 0.001)
    failures += [KazooTimeoutError()] * 9
    stream = of_07._connector.stream
    stream.put(Chunk(OwnedPartition(("t", "9-0"), stream, 0), BATCH, 0, 100))
    while not of_07.poll(0):
        pass
    lines = [record.getMessage().partition(": ")[2] for record in caplog.records if record.levelno >= logging.INFO]
    assert lines == [
        "the copying waits for ZooKeeper: the partitions cannot be read from ZooKeeper: KazooTimeout",
        "over: the copying waits for ZooKeeper",
    ]


def test_records_whose_partition_cannot_be_numbered_before_it_is_revoked_are_dropped(of_07):
    stream = of_07._connector.stream
    owned = OwnedPartition(("t", "9-0"), stream, 0)
    stream.put(Chunk(owned, BATCH, 0, 100))
    assert of_07.poll(0) == []
    stream.revoke([owned])
    assert of_07.poll(0) == []


def test_a_partition_given_up_while_its_first_records_are_taken_is_released_by_its_number(of_07):
    connector = of_07._connector
    owned = OwnedPartition(("t", "9-0"), connector.stream, 0)
    connector.stream.put(Chunk(owned, BATCH, 0, 100))
    release = threading.Thread(target=of_07.before_release, args=([owned.where],))

    def partitions_of(topic):
        connector.stream.revoke([owned])
        release.start()
        eventually(lambda: of_07._changes)
        return ["8-0", "9-0"]

    connector.partitions_of = partitions_of
    assert [piece.where for piece in of_07.poll(0)] == [("t", 1)]
    assert of_07._listener.released == []
    of_07.poll(0)
    release.join(PATIENCE_S)
    assert not release.is_alive()
    assert of_07._listener.released == [("t", 1)]


def test_an_unknown_end_gives_no_lag_and_is_not_requested_again_soon(member, monkeypatch):
    asked = []

    class Asked:
        def __init__(self, cluster):
            pass

        def offsets_now(self, wanted):
            asked.append(wanted)
            if len(asked) > 1:
                raise KafkaError(Errors.LEADER_NOT_AVAILABLE)
            return dict.fromkeys(wanted, FoundOffset(14, -1, -1))

    monkeypatch.setattr(zookeeper_member, "Admin", Asked)
    monkeypatch.setattr(zookeeper_member, "ENDS_INTERVAL_S", 0.0)
    monkeypatch.setattr(member, "_brokers", lambda: None)
    owned_by(member)
    member.poll(5)
    assert member.lags() == {("t", 0): 4}
    assert member.lags() == {}
    assert member.lags() == {}
    assert len(asked) == 2


class Brokers:
    """Topics "t" of two partitions and "other" of one, each partition with the offsets 3 to 13."""

    def __init__(self, cluster):
        pass

    def list_topics(self):
        return [Topic(name, bytes(16), False, dict.fromkeys(range(count))) for name, count in (("other", 1), ("t", 2))]

    def offsets_now(self, wanted, *, isolation=0):
        return {where: FoundOffset(14 if at == LATEST else 3, -1, -1) for where, at in wanted.items()}


@pytest.fixture
def waiting(member, monkeypatch):
    """Return a member without partitions, of a group that has committed one offset."""
    monkeypatch.setattr(zookeeper_member, "Admin", Brokers)
    monkeypatch.setattr(member, "_brokers", lambda: None)
    member._connector.waits_for = "/consumers/g/owners/t/0 in ZooKeeper is still 'g_one-0'"
    member._connector.committed = lambda partitions, cluster: {("t", 0): 10}
    return member


def test_a_member_without_partitions_reports_their_owner_and_the_lag_of_the_group(waiting):
    status = waiting.waiting()
    assert (status.what, status.whose) == ("partitions of group g", waiting._connector.waits_for)
    assert status.lag == (14 - 10) + (14 - 3)  # the second partition is read from its start
    waiting._connector.waits_for = None
    assert waiting.waiting() is None


def test_the_lag_of_the_group_is_looked_up_from_time_to_time(waiting, monkeypatch):
    waiting.waiting()
    waiting._connector.committed = lambda partitions, cluster: dict.fromkeys(partitions, 14)
    assert waiting.waiting().lag == 15
    waiting._ask_group_lag_at = 0.0
    assert waiting.waiting().lag == 0


def test_a_lag_that_cannot_be_looked_up_is_unknown(waiting):
    def fail(partitions, cluster):
        raise ConnectionLoss

    waiting._connector.committed = fail
    assert waiting.waiting().lag is None
    assert waiting.waiting().whose == waiting._connector.waits_for
