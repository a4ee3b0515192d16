"""What the connector tells the reading thread about the partitions that it gives up or loses."""

import pytest

from kafkapy.client.original.assignment import Thread
from kafkapy.client.original.consuming import connector as module
from kafkapy.client.original.consuming.connector import ConsumerConnector
from kafkapy.client.original.consuming.streams import Stream


class NoCluster:
    """A cluster in which no offsets are committed, and that is asked for nothing else."""

    tree = None

    def __init__(self, settings, on_state):
        pass

    def session_timeout_s(self):
        return 6.0

    def brokers(self):
        return None

    def offsets(self):
        return self

    def fetch(self, partitions):
        return dict.fromkeys(partitions)


@pytest.mark.parametrize("lost", [False, True])
def test_only_the_partitions_of_an_expired_session_are_lost(monkeypatch, lost):
    monkeypatch.setattr(module, "SourceCluster", NoCluster)
    monkeypatch.setattr(module, "Fetchers", lambda settings, brokers: None)
    connector = ConsumerConnector({"zookeeper.connect": "z:1", "group.id": "g", "auto.commit.enable": "false"})
    claimed, stream = [], Stream()
    connector._stream_of = lambda topic, number: stream
    connector._on_claim = claimed.extend
    connector.start_reading({("t", "0"): Thread("g_one", 0)})
    connector.stop_reading([("t", "0")], lost=lost)
    (owned,) = claimed
    assert (owned.revoked, owned.lost) == (True, lost)
