"""A broker applies UpdateMetadata of a controller on another broker. The test is that controller."""

import socket
import threading

import pytest

from kafkapy.errors import Errors
from kafkapy.metadata.cache import NO_CONTROLLER
from kafkapy.protocol.apis import DESCRIBE_CLUSTER, METADATA, UPDATE_METADATA, Api
from kafkapy.protocol.headers import request_frame_of
from kafkapy.runtime.disk_pool import PoolStopped
from kafkapy.runtime.threads import NoThread
from kafkapy.server.handlers import metadata
from tests.harness.waiting import eventually
from tests.harness.wire import Wire
from tests.server.requests import start_broker

ME, OTHER, INSIDE_ONLY, DEAD = 0, 7, 8, 9
ID = bytes(range(16))
VERSIONS = range(UPDATE_METADATA.min_version, UPDATE_METADATA.max_version + 1)


class Controller:
    """Broker 7, the controller of a cluster, with a connection to broker 0."""

    def __init__(self, directory):
        self.server = start_broker(directory, broker_id=ME)
        self.services = self.server.services
        self.services.topics._fence.set_term(None)  # broker 0 is not the controller
        self.wire = Wire(self.server.bootstrap_servers)

    def send(self, version=8, partitions=(), *, topic="t", topic_id=ID, epoch=5, broker_epoch=-1):
        """Send the live brokers, and partitions as (index, leader, leader epoch, ISR, replicas, offline replicas)."""
        make = UPDATE_METADATA.Request
        request = make(controller_id=OTHER, controller_epoch=epoch, broker_epoch=broker_epoch)
        request.live_brokers = [
            broker(version, ME, PLAINTEXT=("me", 1), INSIDE=("me", 2)),
            broker(version, OTHER, "rack", PLAINTEXT=("other", 1)),
            broker(version, INSIDE_ONLY, **({"INSIDE": ("inside", 2)} if version >= 3 else {})),
        ]
        grouped = version >= 5
        shape = make.TopicStates.PartitionStates if grouped else make.UngroupedPartitionStates
        states = []
        for index, leader, leader_epoch, isr, replicas, offline in partitions:
            state = shape(
                partition_index=index,
                controller_epoch=epoch,
                leader=leader,
                leader_epoch=leader_epoch,
                isr=isr,
                zk_version=3,
                replicas=replicas,
            )
            if version >= 4:
                state.offline_replicas = offline
            if not grouped:
                state.topic_name = topic
            states.append(state)
        if not grouped:
            request.ungrouped_partition_states = states
        elif states:
            request.topic_states = [make.TopicStates(topic_name=topic, topic_id=topic_id, partition_states=states)]
        return self.wire.call(UPDATE_METADATA, version, request).error_code

    def metadata(self, version=12, topics=("t",)):
        make = METADATA.Request
        asked = [make.Topics(name=name) for name in topics]
        return self.wire.call(METADATA, version, make(topics=asked, allow_auto_topic_creation=version < 4))


def broker(version, broker_id, rack=None, **listeners):
    make = UPDATE_METADATA.Request.LiveBrokers
    if version == 0:
        host, port = listeners.get("PLAINTEXT", ("", 0))
        return make(id=broker_id, v0_host=host, v0_port=port)
    if version < 3:  # has the protocol in the place of a listener name, so one listener for each protocol
        listeners = {name: address for name, address in listeners.items() if name == "PLAINTEXT"}
    endpoints = []
    for name, (host, port) in listeners.items():
        endpoint = make.Endpoints(host=host, port=port, security_protocol=0)
        if version >= 3:
            endpoint.listener = name
        endpoints.append(endpoint)
    made = make(id=broker_id, endpoints=endpoints)
    if version >= 2:
        made.rack = rack
    return made


@pytest.fixture
def controller(tmp_path):
    controller = Controller(tmp_path)
    yield controller
    controller.wire.close()
    controller.server.stop()


@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_fills_the_cache_that_clients_are_answered_from(controller, version):
    offline = [DEAD] if version >= 4 else []
    assert controller.send(version, [(0, OTHER, 4, [OTHER], [OTHER, DEAD], [DEAD])]) == Errors.NONE
    answer = controller.metadata()
    assert answer.controller_id == OTHER
    nodes = {one.node_id: (one.host, one.port, one.rack) for one in answer.brokers}
    assert nodes[ME] == ("me", 1, None)
    assert nodes[OTHER] == ("other", 1, "rack" if version >= 2 else None)
    (topic,) = answer.topics
    assert (topic.error_code, topic.topic_id) == (Errors.NONE, ID if version >= 7 else bytes(16))
    (partition,) = topic.partitions
    assert (partition.error_code, partition.leader_id, partition.leader_epoch) == (Errors.NONE, OTHER, 4)
    assert (partition.replica_nodes, partition.isr_nodes) == ([OTHER, DEAD], [OTHER])
    assert partition.offline_replicas == offline
    assert controller.services.cache.leader("t", 0).partition_epoch == 3
    described = controller.wire.call(DESCRIBE_CLUSTER, 0, DESCRIBE_CLUSTER.Request())
    assert described.controller_id == OTHER
    assert [one.broker_id for one in described.brokers] == [one.node_id for one in answer.brokers]


def test_metadata_waits_until_brokers_are_known(controller):
    """A client would forget all brokers that it knows after a response without brokers."""
    controller.services.cache.set_brokers(NO_CONTROLLER, [])  # as before the first UpdateMetadata
    with Wire(controller.server.bootstrap_servers) as client:
        client.send(METADATA, 12, METADATA.Request(topics=[], allow_auto_topic_creation=False))
        client.socket.settimeout(0.2)
        with pytest.raises(TimeoutError):
            client.receive(METADATA, 12)
        client.socket.settimeout(30)
        assert controller.send(8, [(0, OTHER, 4, [OTHER], [OTHER], [])]) == Errors.NONE
        _, answer = client.receive(METADATA, 12)
    assert [one.node_id for one in answer.brokers] == [ME, OTHER]


def ask_for_metadata(client, *topics):
    make = METADATA.Request
    asked = [make.Topics(name=name) for name in topics]
    client.send(METADATA, 12, make(topics=asked, allow_auto_topic_creation=False))


@pytest.fixture
def before(controller):
    """Return (controller before its first UpdateMetadata, a function that waits for `count` waiting requests)."""
    cache = controller.services.cache
    cache.set_brokers(NO_CONTROLLER, [])

    def waiting(count):
        return eventually(lambda: len(cache._waiting) == count)

    return controller, waiting


def test_metadata_that_waited_has_the_topics_of_the_first_update(before, monkeypatch):
    controller, waiting = before
    monkeypatch.setattr(controller.services.disk_pool, "submit", lambda work, *args: work(*args))  # respond at once
    with Wire(controller.server.bootstrap_servers) as client:
        ask_for_metadata(client, "t")
        waiting(1)
        assert controller.send(8, [(0, OTHER, 4, [OTHER], [OTHER], [])]) == Errors.NONE
        _, answer = client.receive(METADATA, 12)
    assert [(one.error_code, len(one.partitions)) for one in answer.topics] == [(Errors.NONE, 1)]


def test_metadata_waits_for_the_topics_of_a_new_controller_of_kafka_if_this_broker_has_logs(before):
    """A new controller of Kafka sends the brokers first, and the topics later. A producer of librdkafka drops the
    records of a topic that the broker does not know."""
    controller, waiting = before
    cache = controller.services.cache
    cache.is_complete, cache.expects_topics = False, True
    with Wire(controller.server.bootstrap_servers) as client:
        ask_for_metadata(client, "t")
        waiting(1)
        assert controller.send(8, []) == Errors.NONE
        waiting(1)
        assert controller.send(8, [(0, OTHER, 4, [OTHER], [OTHER], [])]) == Errors.NONE
        _, answer = client.receive(METADATA, 12)
    assert [(one.error_code, len(one.partitions)) for one in answer.topics] == [(Errors.NONE, 1)]


def test_metadata_does_not_wait_for_ever_for_topics_that_may_be_deleted(before, monkeypatch):
    controller, waiting = before
    monkeypatch.setattr(metadata, "LONGEST_WAIT_S", 0.05)
    cache = controller.services.cache
    cache.is_complete, cache.expects_topics = False, True
    assert controller.send(8, []) == Errors.NONE
    with Wire(controller.server.bootstrap_servers) as client:
        ask_for_metadata(client, "t")
        _, answer = client.receive(METADATA, 12)
    assert [one.error_code for one in answer.topics] == [Errors.UNKNOWN_TOPIC_OR_PARTITION]
    assert [one.node_id for one in answer.brokers] == [ME, OTHER]
    waiting(0)


def test_metadata_that_waits_is_forgotten_when_its_connection_closes(before):
    controller, waiting = before
    timers = len(controller.services.timer)
    with Wire(controller.server.bootstrap_servers) as first, Wire(controller.server.bootstrap_servers) as second:
        ask_for_metadata(first)
        ask_for_metadata(second)
        waiting(2)
    waiting(0)
    eventually(lambda: len(controller.services.timer) <= timers)


def test_metadata_does_not_wait_for_ever_for_brokers(before, monkeypatch):
    controller, waiting = before
    monkeypatch.setattr(metadata, "LONGEST_WAIT_S", 0.05)
    with Wire(controller.server.bootstrap_servers) as client:
        ask_for_metadata(client)
        assert client.closed()
    waiting(0)


@pytest.mark.parametrize("error", [PoolStopped("stopped"), NoThread("disk", "out of memory")])
def test_an_update_is_complete_though_those_who_waited_for_it_cannot_be_answered(before, monkeypatch, error):
    controller, waiting = before

    def submit(*_):
        raise error

    with Wire(controller.server.bootstrap_servers) as first, Wire(controller.server.bootstrap_servers) as second:
        ask_for_metadata(first, "t")
        ask_for_metadata(second, "t")
        waiting(2)
        with monkeypatch.context() as patch:
            patch.setattr(controller.services.disk_pool, "submit", submit)
            assert controller.send(8, [(0, OTHER, 4, [OTHER], [OTHER], [])]) == Errors.NONE
        assert first.closed()
        assert second.closed()
    assert controller.services.cache.leader("t", 0).epoch == 4


def test_a_request_changes_only_the_partitions_that_it_names(controller):
    controller.send(partitions=[(0, OTHER, 0, [OTHER], [OTHER], []), (1, OTHER, 0, [OTHER], [OTHER], [])])
    controller.send(partitions=[(0, ME, 1, [ME], [ME], [])], topic="u", topic_id=bytes(range(1, 17)))
    controller.send(partitions=[(1, OTHER, 9, [OTHER], [OTHER], [])])
    first, second = controller.metadata(topics=["t", "u"]).topics
    assert [one.leader_epoch for one in first.partitions] == [0, 9]
    assert [one.leader_epoch for one in second.partitions] == [1]
    controller.send()  # only the live brokers have changed
    assert len(controller.metadata(topics=["t", "u"]).topics[0].partitions) == 2


def test_a_topic_without_partitions_left_is_unknown(controller):
    deleted = []
    controller.services.cache.on_deleted = lambda topic, indexes: deleted.append((topic, list(indexes)))
    controller.send(partitions=[(0, OTHER, 0, [OTHER], [OTHER], []), (1, OTHER, 0, [OTHER], [OTHER], [])])
    controller.send(partitions=[(0, -2, 0, [OTHER], [OTHER], []), (1, -2, 0, [OTHER], [OTHER], [])])
    assert controller.metadata().topics[0].error_code == Errors.UNKNOWN_TOPIC_OR_PARTITION
    assert controller.services.cache.name_of(ID) is None
    assert deleted == [("t", [0, 1])]


def test_a_leader_that_is_dead_or_has_no_such_listener_is_no_leader_for_clients(controller):
    replicas = [DEAD, INSIDE_ONLY, ME]
    states = [(index, leader, 6, replicas, replicas, [DEAD]) for index, leader in enumerate((DEAD, INSIDE_ONLY, ME))]
    controller.send(partitions=states)

    def seen(version):
        return [
            (one.error_code, one.leader_id, one.replica_nodes, one.isr_nodes)
            for one in controller.metadata(version).topics[0].partitions
        ]

    nobody, here = Errors.LEADER_NOT_AVAILABLE, (Errors.NONE, ME, replicas, replicas)
    assert seen(12) == [(nobody, -1, replicas, replicas), (Errors.LISTENER_NOT_FOUND, -1, replicas, replicas), here]
    assert seen(5) == [(nobody, -1, replicas, replicas), (nobody, -1, replicas, replicas), here]
    assert seen(0) == [
        (nobody, -1, [ME], [ME]),
        (nobody, -1, [ME], [ME]),
        (Errors.REPLICA_NOT_AVAILABLE, ME, [ME], [ME]),
    ]
    assert {one.leader_epoch for one in controller.metadata().topics[0].partitions} == {6}


def test_requests_for_an_earlier_registration_and_of_a_former_controller_change_nothing(controller):
    state = [(0, OTHER, 0, [OTHER], [OTHER], [])]
    ours = controller.services.broker_epoch
    assert ours > 0
    assert controller.send(partitions=state, broker_epoch=ours - 1) == Errors.STALE_BROKER_EPOCH
    assert controller.send(partitions=state, broker_epoch=ours + 1, topic="known-by-then") == Errors.NONE
    assert controller.send(partitions=state, broker_epoch=ours, epoch=4) == Errors.STALE_CONTROLLER_EPOCH
    assert controller.metadata().topics[0].error_code == Errors.UNKNOWN_TOPIC_OR_PARTITION
    assert controller.metadata(topics=["known-by-then"]).topics[0].error_code == Errors.NONE


def test_a_cache_is_complete_only_after_a_request_with_partitions(controller):
    controller.services.cache.is_complete = False
    controller.send()
    assert not controller.services.cache.is_complete
    controller.send(partitions=[(0, OTHER, 0, [OTHER], [OTHER], [])])
    assert controller.services.cache.is_complete


def test_the_first_topics_of_a_registration_replace_those_that_were_deleted_before_it(controller):
    services = controller.services
    deleted = []
    services.cache.on_deleted = lambda topic, partitions: deleted.append((topic, list(partitions)))
    services.is_topic_gone = lambda topic, topic_id: topic == "gone"  # "offline" exists, without a live replica
    first = services.broker_epoch + 1
    everything = [(0, OTHER, 4, [OTHER], [OTHER], [])]
    for topic in ("gone", "offline", "t"):
        assert controller.send(8, everything, topic=topic, topic_id=topic.ljust(16).encode(), broker_epoch=first) == 0
    assert sorted(services.cache.names()) == ["gone", "offline", "t"]
    assert controller.send(8, broker_epoch=first + 1) == Errors.NONE  # a new controller sends brokers, no topics
    assert "gone" in services.cache
    assert controller.send(8, everything, topic="t", topic_id=b"t".ljust(16), broker_epoch=first + 1) == Errors.NONE
    assert sorted(services.cache.names()) == ["offline", "t"]
    assert deleted == [("gone", [0])]


def test_a_topic_that_was_created_again_has_only_its_new_partitions(controller):
    one, two = (0, OTHER, 4, [OTHER], [OTHER], []), (1, OTHER, 4, [OTHER], [OTHER], [])
    assert controller.send(8, [one, two]) == Errors.NONE
    assert controller.send(8, [two]) == Errors.NONE
    assert sorted(controller.services.cache.indexes("t")) == [0, 1]
    assert controller.send(8, [one], topic_id=bytes(range(1, 17))) == Errors.NONE
    assert list(controller.services.cache.indexes("t")) == [0]


def test_a_large_update_is_decoded_by_the_pool(controller, monkeypatch):
    threads = []
    decode = Api.decode_request

    def noted(api, buffer, version, offset=0):
        if api is UPDATE_METADATA:
            threads.append(threading.current_thread().name)
        return decode(api, buffer, version, offset)

    monkeypatch.setattr(Api, "decode_request", noted)
    many = [(index, OTHER, 4, [OTHER], [OTHER], []) for index in range(2000)]
    assert controller.send(8, many) == Errors.NONE
    assert len(controller.services.cache.indexes("t")) == 2000
    assert threads == ["kafkapy-cluster-0"]


@pytest.mark.parametrize("pool", [None, "disk_pool"], ids=["at once", "authorized on a pool"])
def test_a_large_update_that_is_not_allowed_is_refused_without_being_decoded(controller, monkeypatch, pool):
    class Denies:
        generation = None

        def denied(self, call, actions, *, logged=True, grants=True):
            return actions

    Denies.pool = pool and getattr(controller.services, pool)
    monkeypatch.setattr(controller.services, "authorizer", Denies())
    body = b"\xff" * 20_000
    with Wire(controller.server.bootstrap_servers) as client:
        client.socket.sendall(b"".join(request_frame_of(UPDATE_METADATA, 8, 1, "test", [body])))
        _, answer = client.receive(UPDATE_METADATA, 8)
    assert answer.error_code == Errors.CLUSTER_AUTHORIZATION_FAILED


def test_a_large_update_that_cannot_be_decoded_closes_its_connection(controller, caplog):
    broken = b"".join(request_frame_of(UPDATE_METADATA, 8, 1, "test", [b"\xff" * 20_000]))
    host, _, port = controller.server.bootstrap_servers.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=30) as client:
        client.sendall(broken)
        assert client.recv(1) == b""
    assert "UpdateMetadata" in caplog.text
    assert controller.send(8, [(0, OTHER, 4, [OTHER], [OTHER], [])]) == Errors.NONE
