"""Verifications go to the leader of the coordinator's partition, and markers to the leaders in the metadata cache."""

from functools import partial
from types import SimpleNamespace

import pytest

from kafkapy.coordinator.internal_topic_config import TRANSACTIONS
from kafkapy.errors import Errors
from kafkapy.metadata.cache import MetadataCache
from kafkapy.metadata.roles import NO_LEADER, PartitionRole
from kafkapy.record.control import Marker
from kafkapy.replica.links import LinkError
from kafkapy.server.transaction_peers import MarkerSender, Verification

ME, OTHER, DEAD = 0, 7, 8


class Local:
    """The coordinator and the marker writer of this broker: each call gets code NONE for its partitions."""

    def __init__(self):
        self.calls = []
        self.shards = self

    def partition_for(self, transactional_id):
        return 3

    def verify(self, transactional_id, producer_id, epoch, partitions, done):
        self._answer(partitions, done)

    def write(self, marker, partitions, done):
        self._answer(partitions, done)

    def _answer(self, partitions, done):
        self.calls.append(list(partitions))
        done(dict.fromkeys(partitions, Errors.NONE))


def cache(leaders):
    """Return a metadata cache with these leaders, given by (topic, partition)."""
    cache = MetadataCache()
    cache.update(
        PartitionRole(topic, index, bytes(16), leader, 1, 0, [leader], [leader])
        for (topic, index), leader in leaders.items()
    )
    return cache


class Peers:
    """The other brokers, of which only broker 7 is alive. `requests` gets the requests with their callbacks."""

    def __init__(self):
        self.requests = []

    def address(self, broker_id):
        return ("other", 9092) if broker_id == OTHER else None

    def link(self, broker_id, purpose):
        return SimpleNamespace(ask=partial(self._ask, broker_id, purpose))

    def _ask(self, broker_id, purpose, api, message, done, **how):
        self.requests.append((broker_id, purpose, api, message, done))


def verification(known, local, peers=None):
    return Verification(known, ME, local, peers or Peers(), lambda: 30.0)


def sender_of(known, local, peers=None):
    return MarkerSender(known, ME, local, peers or Peers(), lambda: 30.0)


@pytest.mark.parametrize(
    ("leader", "code"),
    [
        (ME, Errors.NONE),
        (None, Errors.NONE),
        (DEAD, Errors.COORDINATOR_NOT_AVAILABLE),
        (NO_LEADER, Errors.COORDINATOR_NOT_AVAILABLE),
    ],
)
def test_the_local_coordinator_is_asked_unless_another_broker_is_its_leader(leader, code):
    local, codes = Local(), {}
    known = cache({} if leader is None else {(TRANSACTIONS, 3): leader})
    verification(known, local).ask("id", 1, 0, [("t", 0), ("t", 1)], codes.update)
    assert codes == {("t", 0): code, ("t", 1): code}
    assert local.calls == ([[("t", 0), ("t", 1)]] if code == Errors.NONE else [])


@pytest.mark.parametrize(
    ("refusal", "code"),
    [
        (Errors.CLUSTER_AUTHORIZATION_FAILED, Errors.INVALID_TXN_STATE),
        (Errors.UNKNOWN_SERVER_ERROR, Errors.UNKNOWN_SERVER_ERROR),
    ],
)
def test_a_coordinator_that_refuses_the_request_refuses_its_partitions(refusal, code):
    peers, codes = Peers(), {}
    verification(cache({(TRANSACTIONS, 3): OTHER}), Local(), peers).ask("id", 1, 0, [("t", 0)], codes.update)
    ((broker, purpose, api, _, done),) = peers.requests
    assert (broker, purpose) == (OTHER, "txn-verification-sender")
    done(api.Response(error_code=refusal), None)
    assert codes == {("t", 0): code}


def test_partitions_without_an_answer_are_not_verified():
    peers, codes = Peers(), {}
    verification(cache({(TRANSACTIONS, 3): OTHER}), Local(), peers).ask("id", 1, 0, [("t", 0)], codes.update)
    ((*_, api, _, done),) = peers.requests
    done(api.Response(), None)
    assert codes == {("t", 0): Errors.UNKNOWN_SERVER_ERROR}


def test_markers_of_partitions_without_a_live_leader_are_not_written():
    local, peers, codes = Local(), Peers(), {}
    leaders = {("t", 0): ME, ("t", 1): OTHER, ("t", 2): NO_LEADER, ("t", 3): DEAD}
    sender = sender_of(cache(leaders), local, peers)
    sender.write(Marker(1, 0, 0, True), [("t", index) for index in range(5)], codes.update, lambda: True)
    assert local.calls == [[("t", 0), ("t", 4)]]
    again = Errors.NOT_LEADER_OR_FOLLOWER
    assert codes == {("t", 0): Errors.NONE, ("t", 4): Errors.NONE, ("t", 2): again, ("t", 3): again}
    ((broker, purpose, _, message, done),) = peers.requests
    assert (broker, purpose) == (OTHER, "txn-marker-sender")
    assert [topic.partition_indexes for topic in message.markers[0].topics] == [[1]]
    done(None, LinkError("it has died"))
    assert codes["t", 1] == again


def test_a_response_without_a_partition_lets_its_marker_be_written_again():
    peers, codes = Peers(), {}
    sender = sender_of(cache({("t", 0): OTHER}), Local(), peers)
    sender.write(Marker(1, 0, 0, True), [("t", 0)], codes.update, lambda: True)
    ((*_, api, _, done),) = peers.requests
    done(api.Response(markers=[]), None)
    assert codes == {("t", 0): Errors.UNKNOWN_SERVER_ERROR}


def test_a_callback_that_fails_holds_up_no_other_marker():
    def fail(codes):
        raise RuntimeError("a mistake")

    peers, codes = Peers(), {}
    sender = sender_of(cache({("t", 0): OTHER}), Local(), peers)
    for done in (fail, fail, codes.update):
        sender.write(Marker(1, 0, 0, True), [("t", 0)], done, lambda: True)
    for number in range(2):
        *_, done = peers.requests[number]
        done(None, LinkError("it has died"))
    assert codes == {("t", 0): Errors.NOT_LEADER_OR_FOLLOWER}


def test_a_partition_is_gone_if_the_complete_metadata_lack_it():
    known = cache({("t", 0): OTHER})
    sender = sender_of(known, Local())
    assert sender.exists("t", 1)
    known.is_complete = True
    assert (sender.exists("t", 0), sender.exists("t", 1)) == (True, False)
