"""What the connector does with the partitions that it gives up or loses."""

import threading

import pytest
from kazoo.exceptions import AuthFailedError, ConnectionClosedError

from kafkapy.client.original.assignment import Thread
from kafkapy.client.original.consuming import connector as module
from kafkapy.client.original.consuming.connector import ConsumerConnector
from kafkapy.client.original.consuming.streams import Stream

PATIENCE_S = 10.0


class NoCluster:
    """A cluster without committed offsets. It also takes the place of the connector's fetchers."""

    tree = None
    logs_in = True

    def __init__(self, settings, on_state):
        self.committed = {}
        self.revived = 0

    def revive(self):
        self.revived += 1

    def session_timeout_s(self):
        return 6.0

    def brokers(self):
        return None

    def offsets(self):
        return self

    def fetch(self, partitions):
        return dict.fromkeys(partitions)

    def commit(self, offsets):
        self.committed.update(offsets)

    def close(self):
        pass


class Ticking:
    """A session clock that is good while its thread runs, and not after that."""

    def __init__(self, name, timeout_s, is_alive):
        self.runs = threading.Event()
        self.stop = threading.Event()

    def is_good(self):
        return self.runs.is_set() and not self.stop.is_set()

    def run(self, stop, after_tick):
        self.stop = stop
        after_tick()
        self.runs.set()
        stop.wait()


@pytest.fixture
def connector(monkeypatch):
    """Return a connector without a cluster, which has not joined its group."""
    monkeypatch.setattr(module, "SourceCluster", NoCluster)
    monkeypatch.setattr(module, "Fetchers", lambda settings, brokers: NoCluster(settings, None))
    monkeypatch.setattr(module, "SessionClock", Ticking)
    connector = ConsumerConnector({"zookeeper.connect": "z:1", "group.id": "g"})
    assert connector._clock.runs.wait(PATIENCE_S)  # before streams are created, which may be much later
    yield connector
    connector.shutdown()


def claimed_by(connector):
    """Return a partition that the connector owns."""
    claimed, stream = [], Stream()
    connector._stream_of = lambda topic, number: stream
    connector._on_claim = claimed.extend
    connector.start_reading({("t", "0"): Thread("g_one", 0)})
    (owned,) = claimed
    return owned


@pytest.mark.parametrize("lost", [False, True])
def test_only_the_partitions_of_an_expired_session_are_lost(connector, lost):
    owned = claimed_by(connector)
    connector.stop_reading([("t", "0")], lost=lost)
    assert (owned.revoked, owned.lost) == (True, lost)


def test_a_shutdown_commits_what_was_read_however_long_the_rebalance_listener_works(connector):
    owned = claimed_by(connector)
    owned.stream.mark(owned, 7)
    connector.shutdown()
    assert connector._source.committed == {("t", "0"): 7}
    assert not connector._clock.is_good()


def test_a_client_that_has_given_up_after_a_refused_login_is_started_again(connector):
    assert connector._source.revived == 1


@pytest.mark.parametrize("error", [AuthFailedError(), ConnectionClosedError("Connection has been closed")])
def test_requests_fail_with_one_message_after_a_refused_login(connector, error):
    assert connector._message(error).startswith("ZooKeeper at z:1 refuses the login")
    connector._source.logs_in = False
    assert "login" not in connector._message(error)


class Blocked:
    """A rebalancer whose partitions another member keeps. It is also its event `wake_up`, and never waits."""

    session = None
    blocked = "/consumers/g/owners/t/0 in ZooKeeper is still 'g_two-0'"

    def __init__(self, connector):
        self.wake_up = self
        self.connector = connector
        self.waits = []

    def attempt(self):
        return False

    def wait(self, timeout=None):
        self.waits.append(timeout)
        if len(self.waits) == 5:
            self.connector._closing.set()

    def set(self):
        pass


def test_a_blocked_rebalance_is_repeated_after_a_pause_even_without_a_back_off(connector):
    connector.settings = connector.settings._replace(rebalance_backoff_ms=0, rebalance_max_retries=2)
    connector._rebalancer = blocked = Blocked(connector)
    connector._keep_balanced()
    assert blocked.waits == [None, 0.0, 0.0, module._PAUSE_S, None]
    assert module._PAUSE_S > 0
    connector._closing.clear()  # so that it can be shut down
