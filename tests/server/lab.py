"""A broker in this process, and requests of every kind to it, including requests that wait."""

import itertools
import threading
import time
from contextlib import contextmanager

from kafkapy.errors import Errors
from kafkapy.log.partition_log import PartitionLog
from kafkapy.log.results import BUSY
from kafkapy.protocol import apis
from kafkapy.protocol.headers import request_frame
from kafkapy.record.batch import build
from kafkapy.server.api_table import TABLE
from tests.harness.group_wire import GroupWire
from tests.harness.waiting import eventually
from tests.harness.wire import Wire
from tests.server.requests import start_broker

NOW = time.time_ns() // 1_000_000
LONG = 30


class Nothing:
    """A page cache that never has any page."""

    def ready(self, fd, position, length):
        return False

    resident = ready

    def read_now(self, fd, buffer, start, end, position):
        return -1


class Lab:
    """A broker with one network thread, connections to it, and helpers for requests."""

    def __init__(self, directory, **settings):
        self.server = start_broker(
            directory,
            num_network_threads=1,
            group_initial_rebalance_delay_ms=0,
            offsets_topic_num_partitions=1,
            transaction_state_log_num_partitions=1,
            **settings,
        )
        self.bootstrap = self.server.bootstrap_servers
        (self.processor,) = self.server._network._processors
        self.wire, self.group = self.connect(), GroupWire(self.bootstrap)
        self._numbers = itertools.count()
        self.group.find_coordinator("any")
        self.wire.producer("any")

    def stop(self):
        self.wire.close()
        self.group.close()
        self.server.stop()

    def connect(self):
        return Wire(self.bootstrap)

    def name(self):
        return f"name-{next(self._numbers)}"

    def topic(self, partitions=1, **configs):
        name = self.name()
        self.wire.create_topic(name, partitions, **configs)
        return name

    def produce(self, topic, data=None, acks=1, version=9, transactional_id=None):
        """Return the response for the partition."""
        fields = produce_of(topic, data, acks, transactional_id)
        if acks == 0:
            send(self.wire, apis.PRODUCE, version, **fields)
            return None
        return self.wire.call(apis.PRODUCE, version, **fields).responses[0].partition_responses[0]

    def fetch(self, *args, version=11, **settings):
        answer = self.wire.call(apis.FETCH, version, **fetch_of(*args, **settings))
        assert answer.error_code == Errors.NONE
        return answer

    def until_waiting(self, operations=1):
        """Wait until this number of fetches is in the purgatory."""
        eventually(lambda: self.server.services.replicas.fetch_purgatory.delayed == operations)

    def until_connections(self, number):
        eventually(lambda: len(self.processor) == number)

    def held(self):
        return held(self.server)


@contextmanager
def held(server):
    """Block the only network thread until the block ends, so that it handles everything sent meanwhile in one turn."""
    (processor,) = server._network._processors
    begun, may_continue = threading.Event(), threading.Event()

    def hold():
        begun.set()
        may_continue.wait(LONG)

    processor.post(hold)
    assert begun.wait(LONG)
    try:
        yield
    finally:
        may_continue.set()


def turns_of(api, monkeypatch):
    """Return a list to which each call of the API's handler for several connections adds the number of connections."""
    sizes = []

    def handler(broker, lists):
        if len(lists) > 1:
            sizes.append(len(lists))
        return plain(broker, lists)

    served = TABLE.find(api.key)
    plain = served.handler
    monkeypatch.setattr(served, "handler", handler)
    return sizes


def busy(monkeypatch, what):
    """Make every non-blocking "append" or "read" return BUSY, so that a disk thread does it. `what` is the method."""
    plain = getattr(PartitionLog, what)

    def waiting(log, *args, **kwargs):
        return BUSY if kwargs.get("blocking") is False else plain(log, *args, **kwargs)

    monkeypatch.setattr(PartitionLog, what, waiting)


def cold(lab, monkeypatch):
    """Make the broker read as if nothing were in the page cache."""
    monkeypatch.setattr(lab.processor.sender, "_pages", Nothing())
    monkeypatch.setattr(lab.processor._serving, "_pages", Nothing())


def send(wire, api, version, **fields):
    wire.socket.sendall(request_frame(api, version, 0, "lab", api.Request(**fields)))


def receive(wire):
    """Return the frame of the next response, without its size."""
    return wire._exactly(int.from_bytes(wire._exactly(4), "big"))


def batch(**settings):
    return build([(NOW, None, b"value", [])], **settings)


def produce_of(topic, data=None, acks=1, transactional_id=None):
    part = apis.PRODUCE.Request.TopicData.PartitionData(index=0, records=batch() if data is None else data)
    topics = [apis.PRODUCE.Request.TopicData(name=topic, partition_data=[part])]
    return {"transactional_id": transactional_id, "acks": acks, "timeout_ms": 5000, "topic_data": topics}


def fetch_of(topic=None, offset=0, wait=0, session=(0, -1), min_bytes=1):
    part = apis.FETCH.Request.Topics.Partitions(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    return {
        "replica_id": -1,
        "max_wait_ms": wait,
        "min_bytes": min_bytes,
        "max_bytes": 1 << 20,
        "session_id": session[0],
        "session_epoch": session[1],
        "topics": [apis.FETCH.Request.Topics(topic=topic, partitions=[part])] if topic else [],
    }


class InlineReads:
    """Records in `threads` the names of the threads that call a function."""

    def __init__(self, monkeypatch, module, name):
        self.threads = []
        original = getattr(module, name)

        def called(*args):
            self.threads.append(threading.current_thread().name)
            return original(*args)

        monkeypatch.setattr(module, name, called)

    def on_network(self):
        return any("network" in name for name in self.threads)
