"""A member in ZooKeeper, whose connector gives up partitions in a thread of its own."""

import threading
import time

import pytest

from kafkapy.client.original.filters import Whitelist
from kafkapy.client.original.streams import Chunk, OwnedPartition, Stream
from kafkapy.mirror import zookeeper_member
from kafkapy.mirror.source_settings import read_source
from kafkapy.mirror.sources import NotCommitted
from kafkapy.mirror.zookeeper_member import ZooKeeperMember
from kafkapy.record.batch import build

PATIENCE_S = 20.0
BATCH = memoryview(build([(0, None, b"x", ())] * 10))


class FakeConnector:
    def __init__(self, properties):
        self.settings = read_source(properties | {"zookeeper.connect": "z:1"}).settings
        self.stream = Stream()
        self.committed = []

    def create_message_streams_by_filter(self, topics, *, rebalance_listener):
        return [self.stream]

    def commit_offsets(self, offsets):
        self.committed.append(dict(offsets))

    def shutdown(self):
        self.stream.close()


class Told:
    def __init__(self):
        self.released = []
        self.lost = []

    def on_taken(self, partitions):
        raise AssertionError

    def before_release(self, partitions):
        self.released += partitions

    def on_lost(self, partitions):
        self.lost += partitions


@pytest.fixture
def member(monkeypatch):
    monkeypatch.setattr(zookeeper_member, "ConsumerConnector", lambda given: FakeConnector({"group.id": "g"}))
    made = ZooKeeperMember(read_source({"zookeeper.connect": "z:1", "group.id": "g"}), Whitelist("t"))
    made.listener = Told()
    made.open(made.listener)
    return made


def owned_by(member, number=0):
    """A partition that the member owns, of which a chunk has come."""
    stream = member._connector.stream
    owned = OwnedPartition(("t", str(number)), stream, 0)
    stream.put(Chunk(owned, BATCH, 3))
    return owned


def test_chunks_come_with_the_offset_behind_them(member):
    owned_by(member, 0)
    owned_by(member, 1)
    pieces = member.poll(5)
    assert [(piece.where, piece.start, piece.after) for piece in pieces] == [(("t", 0), 3, 10), (("t", 1), 3, 10)]
    assert list(member.poll(0.1)) == []


def test_partitions_are_given_up_when_the_thread_that_polls_is_through_with_them(member):
    owned = owned_by(member)
    member.poll(5)
    owned.stream.take_away([owned])
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


def test_what_went_with_the_session_is_told_as_lost_also_if_it_is_ours_again(member):
    """Otherwise the group would go back to where we were before others had it."""
    owned = owned_by(member)
    member.poll(5)
    owned.stream.take_away([owned])
    again = owned_by(member)
    assert [piece.where for piece in member.poll(5)] == [("t", 0)]
    assert (member.listener.released, member.listener.lost) == ([], [("t", 0)])
    assert not again.taken_away
    member.poll(0.1)
    assert member.listener.lost == [("t", 0)]


def test_who_waits_for_the_thread_that_polls_is_let_go_when_that_closes(member):
    thread = threading.Thread(target=member.before_release, args=([("t", 0)],))
    thread.start()
    member.close()
    thread.join(PATIENCE_S)
    assert not thread.is_alive()


def test_a_commit_that_fails_can_be_made_again(member, monkeypatch):
    member.commit({("t", 0): 7})
    assert member._connector.committed == [{("t", 0): 7}]

    def refuse(offsets):
        raise zookeeper_member.KazooTimeoutError

    monkeypatch.setattr(member._connector, "commit_offsets", refuse)
    with pytest.raises(NotCommitted, match="KazooTimeoutError"):
        member.commit({("t", 0): 8})
