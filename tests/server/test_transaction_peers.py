"""Verifications go to the leader of the coordinator's partition, and markers to the leaders in the metadata cache."""

import pytest

from kafkapy.coordinator.internal_topic_config import TRANSACTIONS
from kafkapy.errors import Errors
from kafkapy.metadata.cache import MetadataCache
from kafkapy.metadata.roles import NO_LEADER, PartitionRole
from kafkapy.record.control import Marker
from kafkapy.server.transaction_peers import MarkerSender, Verification

ME, OTHER = 0, 7


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
    """Return a metadata cache with these leaders, by topic and partition."""
    cache = MetadataCache()
    cache.update(
        PartitionRole(topic, index, bytes(16), leader, 1, 0, [leader], [leader])
        for (topic, index), leader in leaders.items()
    )
    return cache


@pytest.mark.parametrize(
    ("leader", "code"),
    [(ME, Errors.NONE), (None, Errors.NONE), (OTHER, Errors.NOT_COORDINATOR), (NO_LEADER, Errors.NOT_COORDINATOR)],
)
def test_the_local_coordinator_is_asked_unless_another_broker_is_its_leader(leader, code):
    local, codes = Local(), {}
    known = cache({} if leader is None else {(TRANSACTIONS, 3): leader})
    Verification(known, ME, local).ask("id", 1, 0, [("t", 0), ("t", 1)], codes.update)
    assert codes == {("t", 0): code, ("t", 1): code}
    assert local.calls == ([[("t", 0), ("t", 1)]] if code == Errors.NONE else [])


def test_only_markers_for_partitions_of_this_broker_are_written():
    local, codes = Local(), {}
    sender = MarkerSender(cache({("t", 0): ME, ("t", 1): OTHER, ("t", 2): NO_LEADER}), ME, local)
    partitions = [("t", index) for index in range(4)]
    sender.write(Marker(1, 0, 0, True), partitions, codes.update)
    assert local.calls == [[("t", 0), ("t", 3)]]
    again = Errors.NOT_LEADER_OR_FOLLOWER
    assert codes == dict(zip(partitions, [Errors.NONE, again, again, Errors.NONE], strict=True))


def test_a_partition_is_gone_if_the_complete_metadata_lack_it():
    known = cache({("t", 0): OTHER})
    sender = MarkerSender(known, ME, Local())
    assert sender.exists("t", 1)
    known.is_complete = True
    assert (sender.exists("t", 0), sender.exists("t", 1)) == (True, False)
