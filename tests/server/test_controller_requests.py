"""A broker obeys LeaderAndIsr and StopReplica of a controller on another broker. The test is that controller."""

import errno

import pytest

from kafkapy.errors import Errors
from kafkapy.log.storage.files import Files
from kafkapy.metadata.cache import LiveBroker
from kafkapy.protocol.apis import LEADER_AND_ISR, METADATA, STOP_REPLICA, UPDATE_METADATA
from tests.harness.waiting import eventually
from tests.harness.wire import Wire
from tests.server.requests import start_broker

ME, OTHER, SUCCESSOR = 0, 7, 8
TOPIC_ID = bytes(range(16))
LISR_VERSIONS = range(LEADER_AND_ISR.min_version, LEADER_AND_ISR.max_version + 1)
STOP_VERSIONS = range(STOP_REPLICA.min_version, STOP_REPLICA.max_version + 1)


class Controller:
    """The controller of a cluster, with a connection to broker 0."""

    def __init__(self, directory, files=None):
        self.server = start_broker(directory, broker_id=ME, files=files)
        self.server.services.topics._fence.set_term(None)  # broker 0 is not the controller
        self.replicas = self.server.services.replicas
        self.wire = Wire(self.server.bootstrap_servers)

    def send_roles(self, version=7, *, epoch=5, broker_epoch=-1, partitions=(0,), **fields):
        make = LEADER_AND_ISR.Request
        role = {"leader": ME, "leader_epoch": 0, "isr": [ME, OTHER], "replicas": [ME, OTHER], "partition_epoch": 0}
        role |= {"controller_epoch": epoch} | fields
        request = make(controller_id=OTHER, controller_epoch=epoch, broker_epoch=broker_epoch, live_leaders=[])
        if version < 2:
            shape = make.UngroupedPartitionStates
            request.ungrouped_partition_states = [
                shape(topic_name="t", partition_index=index, is_new=version >= 1, **role) for index in partitions
            ]
        else:
            shape = make.TopicStates.PartitionStates
            states = [shape(partition_index=index, is_new=True, **role) for index in partitions]
            request.topic_states = [make.TopicStates(topic_name="t", topic_id=TOPIC_ID, partition_states=states)]
        response = self.wire.call(LEADER_AND_ISR, version, request)
        if version < 5:
            assert all(one.topic_name == "t" for one in response.partition_errors)
            found = response.partition_errors
        else:
            found = [one for topic in response.topics for one in topic.partition_errors]
        return response.error_code, {one.partition_index: one.error_code for one in found}

    def stop_partition(self, version=4, *, epoch=5, broker_epoch=-1, leader_epoch=0, delete=True):
        make = STOP_REPLICA.Request
        request = make(controller_id=OTHER, controller_epoch=epoch, broker_epoch=broker_epoch)
        if version <= 2:
            request.delete_partitions = delete
        if version == 0:
            request.ungrouped_partitions = [make.UngroupedPartitions(topic_name="t", partition_index=0)]
        elif version <= 2:
            request.topics = [make.Topics(name="t", partition_indexes=[0])]
        else:
            state = make.TopicStates.PartitionStates(
                partition_index=0, leader_epoch=leader_epoch, delete_partition=delete
            )
            request.topic_states = [make.TopicStates(topic_name="t", partition_states=[state])]
        response = self.wire.call(STOP_REPLICA, version, request)
        return response.error_code, [one.error_code for one in response.partition_errors]

    def close(self):
        self.wire.close()
        self.server.stop()


@pytest.fixture
def controller(tmp_path):
    controller = Controller(tmp_path)
    yield controller
    controller.close()


@pytest.mark.parametrize("version", LISR_VERSIONS)
def test_every_version_of_leader_and_isr_makes_leaders_and_followers(controller, version):
    assert controller.send_roles(version, partitions=[0, 1]) == (Errors.NONE, {0: Errors.NONE, 1: Errors.NONE})
    partition = controller.replicas.get("t", 0)
    assert (partition.leader_epoch, partition.isr, partition.replicas) == (0, (ME, OTHER), (ME, OTHER))
    assert partition.log.topic_id == (TOPIC_ID if version >= 5 else None)
    assert controller.send_roles(version, leader=OTHER, leader_epoch=1) == (Errors.NONE, {0: Errors.NONE})
    followed = controller.replicas.followed("t", 0)
    assert (followed.leader, followed.leader_epoch) == (OTHER, 1)
    assert partition.gone.code == Errors.NOT_LEADER_OR_FOLLOWER
    assert controller.replicas.get("t", 1).leader_epoch == 0


@pytest.mark.parametrize("version", STOP_VERSIONS)
def test_every_version_of_stop_replica_deletes_the_log(controller, version):
    controller.send_roles()
    directory = controller.replicas.get("t", 0).log.dir
    assert controller.stop_partition(version, delete=False) == (Errors.NONE, [Errors.NONE])
    assert directory.exists()
    assert controller.stop_partition(version) == (Errors.NONE, [Errors.NONE])
    assert not directory.exists()


def test_requests_of_an_earlier_registration_are_refused_as_a_whole(controller):
    controller.server.services.broker_epoch = 100
    assert controller.send_roles(broker_epoch=99) == (Errors.STALE_BROKER_EPOCH, {0: Errors.STALE_BROKER_EPOCH})
    assert controller.replicas.followed("t", 0) is None
    for epoch in (-1, 100, 101):
        assert controller.send_roles(broker_epoch=epoch, leader_epoch=epoch + 1) == (Errors.NONE, {0: Errors.NONE})
    assert controller.stop_partition(broker_epoch=99) == (Errors.STALE_BROKER_EPOCH, [])
    assert controller.replicas.get("t", 0).leader_epoch == 102


def test_requests_of_a_former_controller_are_refused_as_a_whole(controller):
    assert controller.send_roles(epoch=5)[0] == Errors.NONE
    late = controller.send_roles(epoch=4, leader_epoch=9)
    assert late == (Errors.STALE_CONTROLLER_EPOCH, {0: Errors.STALE_CONTROLLER_EPOCH})
    assert controller.stop_partition(epoch=4) == (Errors.STALE_CONTROLLER_EPOCH, [])
    assert controller.replicas.get("t", 0).leader_epoch == 0


def test_a_former_controller_whose_session_expired_is_not_obeyed(controller):
    """KAFKA-3083: the former controller does not know of its successor, and continues to send requests with later
    leader epochs. This broker knows the successor only from UpdateMetadata."""
    controller.send_roles(epoch=5, leader_epoch=2)
    with Wire(controller.server.bootstrap_servers) as former:
        successor, controller.wire = controller.wire, former
        make = UPDATE_METADATA.Request
        brokers = [make.LiveBrokers(id=SUCCESSOR, endpoints=[])]

        def announce(wire, controller_id, epoch):
            update = make(controller_id=controller_id, controller_epoch=epoch, broker_epoch=-1, live_brokers=brokers)
            return wire.call(UPDATE_METADATA, 8, update).error_code

        assert announce(successor, SUCCESSOR, 6) == Errors.NONE
        stale = Errors.STALE_CONTROLLER_EPOCH
        assert controller.send_roles(epoch=5, leader=OTHER, leader_epoch=3) == (stale, {0: stale})
        assert controller.stop_partition(epoch=5, leader_epoch=3) == (stale, [])
        assert announce(former, OTHER, 5) == stale
        controller.wire = successor
    assert controller.replicas.get("t", 0).leader_epoch == 2
    assert controller.server.services.cache.controller_id == SUCCESSOR
    assert controller.send_roles(epoch=6, leader_epoch=3) == (Errors.NONE, {0: Errors.NONE})


def test_a_request_that_comes_late_on_a_connection_that_the_controller_has_replaced_changes_nothing(controller):
    """The controller has sent this request again on a new connection, and later requests after it."""
    first = controller.wire
    with Wire(controller.server.bootstrap_servers) as controller.wire:
        assert controller.send_roles(leader_epoch=2)[0] == Errors.NONE
        controller.wire, second = first, controller.wire
        with pytest.raises((AssertionError, OSError)):  # the broker closes the connection
            controller.send_roles(leader_epoch=5)
        assert controller.replicas.get("t", 0).leader_epoch == 2
        controller.wire = second
        assert controller.send_roles(leader_epoch=3)[0] == Errors.NONE
    with Wire(controller.server.bootstrap_servers) as controller.wire:
        assert controller.send_roles(leader_epoch=4)[0] == Errors.NONE
    controller.wire = first


class FullDisk(Files):
    full = True

    def make_dir(self, path):
        if self.full and path.endswith("/t-0"):
            raise OSError(errno.ENOSPC, "No space left on device")
        super().make_dir(path)


@pytest.mark.parametrize(
    ("leader", "isr", "code"),
    [(OTHER, [ME, OTHER], Errors.NONE), (ME, [ME], Errors.NONE), (ME, [ME, OTHER], Errors.KAFKA_STORAGE_ERROR)],
)
def test_a_role_that_a_full_disk_prevents_is_answered_with_an_error_only_if_another_broker_can_lead(
    tmp_path, leader, isr, code
):
    """After an error, the controller takes the replica for offline. The broker takes the role later in any case."""
    disk = FullDisk()
    controller = Controller(tmp_path, disk)
    try:
        cache = controller.server.services.cache
        cache.set_brokers(OTHER, [*cache.live_brokers(), LiveBroker(OTHER, {})])
        assert controller.send_roles(leader=leader, isr=isr) == (Errors.NONE, {0: code})
        assert not controller.replicas.holds("t", 0)
        disk.full = False
        leads = leader == ME and code == Errors.NONE
        eventually(lambda: controller.replicas.holds("t", 0) if leads else controller.replicas.followed("t", 0))
    finally:
        controller.close()


def test_a_stop_of_an_earlier_leader_epoch_is_refused_for_its_partition(controller):
    controller.send_roles(leader_epoch=3)
    assert controller.stop_partition(leader_epoch=2) == (Errors.NONE, [Errors.FENCED_LEADER_EPOCH])
    assert controller.stop_partition(leader_epoch=-2) == (Errors.NONE, [Errors.NONE])


def test_a_role_with_a_lower_partition_epoch_than_an_isr_change_is_skipped(controller):
    controller.send_roles()
    controller.replicas.get("t", 0).partition_epoch = 4  # as after the response to AlterPartition
    assert controller.send_roles(leader_epoch=1, partition_epoch=3) == (Errors.NONE, {0: Errors.NONE})
    assert controller.replicas.get("t", 0).leader_epoch == 0
    assert controller.send_roles(leader_epoch=1, partition_epoch=4) == (Errors.NONE, {0: Errors.NONE})
    assert controller.replicas.get("t", 0).leader_epoch == 1


def test_a_topic_id_comes_without_a_new_leader_epoch_when_a_cluster_is_upgraded(controller):
    assert controller.send_roles(4, leader=OTHER) == (Errors.NONE, {0: Errors.NONE})
    followed = controller.replicas.followed("t", 0)
    assert followed.log.topic_id is None
    assert controller.send_roles(7, leader=OTHER) == (Errors.NONE, {0: Errors.NONE})
    assert followed.log.topic_id == followed.topic_id == TOPIC_ID
    assert controller.send_roles(7, leader=OTHER) == (Errors.NONE, {0: Errors.STALE_CONTROLLER_EPOCH})
    assert controller.send_roles(4, leader=OTHER) == (Errors.NONE, {0: Errors.NONE})  # downgraded
    assert followed.topic_id == bytes(16)
    assert followed.log.topic_id == TOPIC_ID


def test_the_broker_serves_clients_while_it_takes_hundreds_of_roles(controller):
    count = 300
    assert controller.send_roles(partitions=range(count)) == (Errors.NONE, dict.fromkeys(range(count), Errors.NONE))
    assert sum(1 for _ in controller.replicas) == count
    answer = controller.wire.call(METADATA, 12, METADATA.Request(topics=[], allow_auto_topic_creation=False))
    assert answer.brokers


def test_large_requests_of_the_controller_are_handled_without_a_garbage_collection(controller, monkeypatch):
    """A garbage collection would stop all threads, and find nothing to free."""
    pauses = []

    class Paused:
        def __enter__(self):
            pauses.append("begin")

        def __exit__(self, *_):
            pauses.append("end")

    apply = controller.server.services.roles.apply

    def noted(*arguments):
        pauses.append("roles")
        return apply(*arguments)

    monkeypatch.setattr("kafkapy.runtime.collector.paused", Paused)
    monkeypatch.setattr(controller.server.services.roles, "apply", noted)
    code, codes = controller.send_roles(partitions=range(400))
    assert (code, set(codes.values()), len(codes)) == (Errors.NONE, {Errors.NONE}, 400)
    eventually(lambda: pauses == ["begin", "roles", "end"])  # the pause may end after the response
