"""A cluster of brokers with coordinators in one process. The test acts as the controller and the network.

Each broker has its own log directory, replicas, roles, metadata cache and coordinators. All have one manual clock and
one timer, whose callbacks run only in `Cluster.pass_time`. Records reach the followers in `Cluster.replicate`. Requests
between the brokers are encoded and decoded as on a connection, see `Network`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

from kafkapy.coordinator.groups.coordinator import GroupCoordinator
from kafkapy.coordinator.internal_topic_config import GROUPS, TRANSACTIONS
from kafkapy.coordinator.offsets.commits import Commit
from kafkapy.coordinator.shard import Producer
from kafkapy.coordinator.shard_loader import LoadQueue
from kafkapy.errors import Errors, KafkaError, name_of
from kafkapy.log.config import LogConfig
from kafkapy.log.manager import LogManager
from kafkapy.metadata.cache import LEADER_DURING_DELETE
from kafkapy.metadata.roles import NO_LEADER, PartitionRole
from kafkapy.metadata.topics import Topic
from kafkapy.protocol.apis import WRITE_TXN_MARKERS, Api
from kafkapy.record.batch import records_of
from kafkapy.replica.links import LinkError
from kafkapy.replica.manager import ReplicaManager
from kafkapy.replica.roles import Roles
from kafkapy.runtime.clock import ManualClock
from kafkapy.runtime.scheduler import Scheduler
from kafkapy.server.config.broker_config import BrokerConfig
from kafkapy.server.coordinators import Coordinators
from kafkapy.server.handlers import markers, transaction_partitions
from kafkapy.server.services import Services
from tests.coordinator.groups.world import HandTimer
from tests.coordinator.groups.world import World as GroupClients
from tests.harness.appends import AtOnce
from tests.harness.batches import iter_batches
from tests.harness.followers import follower_at

TOPIC_IDS = {name: bytes([number]) * 16 for number, name in enumerate((GROUPS, TRANSACTIONS, "t", "u"), 1)}


class Loads(LoadQueue):
    """A load queue that runs its jobs at once or, while `held` is True, when the test calls `run`."""

    def __init__(self) -> None:
        super().__init__(1)
        self.held = False
        self._jobs: list[Callable[[], None]] = []

    def put(self, key: Any, job: Callable[[], None]) -> None:
        self._jobs.append(job)
        if not self.held:
            self.run()

    def prioritize(self, key: Any) -> None:
        """Do nothing: the test decides when the jobs run."""

    def run(self) -> None:
        while self._jobs:
            self._jobs.pop(0)()


class Request(NamedTuple):
    """A request from one broker to another, decoded. `version` is the version in which it was encoded."""

    sender: int
    receiver: int
    api: Api
    version: int
    message: Any


class Network:
    """The connections between the brokers. `requests` has all requests that were sent.

    held        while True, requests wait until the test calls `deliver`
    lost        pairs of brokers (sender, receiver): requests get no response
    versions    the highest version that a broker serves, by (broker, API)
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.requests: list[Request] = []
        self.held = False
        self.lost: set[tuple[int, int]] = set()
        self.versions: dict[tuple[int, Api], int] = {}
        self._waiting: list[Callable[[], object]] = []

    def ask(self, sender: int, receiver: int, api: Api, message: Any, done: Any, versions: tuple[int, int]) -> None:
        version = min(versions[1], self.versions.get((receiver, api), api.max_version))
        if version < versions[0]:
            done(None, LinkError(f"broker {receiver} serves {api.name} up to v{version}", unsupported=True))
            return
        frame = api.encode_request(message, version)
        request = Request(sender, receiver, api, version, api.decode_request(frame, version))
        self.requests.append(request)
        self._waiting.append(lambda: self._carry_out(request, done))
        if not self.held:
            self.deliver()

    def deliver(self) -> None:
        """Deliver the waiting requests. Requests sent meanwhile are delivered at once unless `held` is True."""
        waiting, self._waiting = self._waiting, []
        for carry_out in waiting:
            carry_out()

    def _carry_out(self, request: Request, done: Any) -> None:
        receiver = self._cluster.members[request.receiver]
        if (request.sender, request.receiver) in self.lost or not receiver.is_alive:
            done(None, LinkError(f"the connection to broker {request.receiver} was lost"))
            return

        def reply(message: Any) -> None:
            frame = request.api.encode_response(message, request.version)
            done(request.api.decode_response(frame, request.version), None)

        if request.api is WRITE_TXN_MARKERS:
            markers._write_all(receiver.services, request.message, reply)
        else:
            call: Any = SimpleNamespace(version=request.version)
            transaction_partitions._begin_all(receiver.services, call, request.message, reply)


class Links:
    """The links of one broker to the others; a stand-in for `kafkapy.server.peers.Peers`."""

    def __init__(self, cluster: Cluster, broker_id: int) -> None:
        self._cluster = cluster
        self._broker_id = broker_id

    def address(self, broker_id: int) -> tuple[str, int] | None:
        is_alive = broker_id >= 0 and self._cluster.members[broker_id].is_alive
        return ("localhost", 9092 + broker_id) if is_alive else None

    def link(self, broker_id: int, purpose: str) -> Any:
        def ask(api: Api, message: Any, done: Any, *, timeout_s: float, versions: Any = None) -> None:
            served = versions or (api.min_version, api.max_version)
            self._cluster.network.ask(self._broker_id, broker_id, api, message, done, served)

        return SimpleNamespace(ask=ask)


class Member:
    """One broker of the cluster. While `is_alive` is False, the broker gets no requests and no roles."""

    def __init__(self, cluster: Cluster, broker_id: int, directory: Path) -> None:
        self._cluster = cluster
        self.id = broker_id
        self.is_alive = True
        self.loads = Loads()
        self.services = services = Services()
        services.broker_id = broker_id
        services.clock = cluster.clock
        services.config = BrokerConfig(
            {
                "log.dirs": str(directory),
                "broker.id": str(broker_id),
                "group.initial.rebalance.delay.ms": "0",
                "offsets.topic.num.partitions": "1",
                "transaction.state.log.num.partitions": "1",
            }
        )
        pool: Any = AtOnce()
        timer: Any = cluster.timer
        topics: Any = cluster
        ids: Any = cluster
        links: Any = Links(cluster, broker_id)
        services.topics, services.producer_ids, services.disk_pool, services.peers = topics, ids, pool, links
        directory.mkdir()
        self._scheduler = Scheduler(cluster.clock)
        self.logs = LogManager([directory], LogConfig({}), clock=cluster.clock, scheduler=self._scheduler)
        self.logs.load()
        services.replicas = self.replicas = ReplicaManager(
            self.logs, broker_id=broker_id, timer=timer, append_pool=pool, stall_threshold=1.0
        )
        services.roles = self.roles = Roles(self.replicas, lambda topic: LogConfig({}), cache=services.cache)
        services.coordinators = self.coordinators = Coordinators(services, timer, self._scheduler)
        self.replicas.on_became_leader = self.coordinators.became_leader
        self.replicas.on_lost_leadership = self.coordinators.lost_leadership
        services.cache.on_deleted = self.coordinators.topic_deleted
        self.coordinators._parts["load queue"] = self.loads

    @property
    def groups(self) -> GroupClients:
        """Return clients of consumer groups that send their requests to this broker."""
        return Clients(self.coordinators.groups)

    def commit(self, offset: int, group: str = "readers", producer: Producer | None = None) -> list[list[int]]:
        """Commit the offset of partition 0 of topic "t". Return a list that gets the codes with the response."""
        codes: list[list[int]] = []
        offsets = [("t", [(0, offset, -1, "", -1)])]
        now_ms = self.services.clock.time_ms()
        self.coordinators.offsets.commit(Commit(group, "", None, -1, offsets, producer, now_ms), codes.append)
        return codes

    def committed(self, group: str = "readers") -> int:
        """Return the committed offset of partition 0 of topic "t", or the negative error code."""
        try:
            ((_, found),) = self.coordinators.offsets.fetch(group, [("t", 0)], require_stable=False)
        except KafkaError as error:
            return -error.code
        return found.offset

    # --- transactions

    def init(self, transactional_id: str = "tx") -> Producer:
        """Initialize the transactional id, replicate its state, and return the producer."""
        found: list[Producer] = []

        def answer(code: int, producer: Producer) -> None:
            assert code == Errors.NONE
            found.append(producer)

        self.coordinators.transactions.init_producer_id(transactional_id, 60_000, -1, -1, answer)
        self._cluster.replicate(TRANSACTIONS)
        return found[0]

    def add(self, producer: Producer, *partitions: tuple[str, int], transactional_id: str = "tx") -> list[int]:
        """Add the partitions to the transaction. Return a list that gets the error code."""
        codes: list[int] = []
        self.coordinators.transactions.add_partitions(transactional_id, *producer, partitions, codes.append)
        self._cluster.replicate(TRANSACTIONS)
        return codes

    def end(self, producer: Producer, commit: bool = True, transactional_id: str = "tx") -> list[int]:
        """End the transaction. Return a list that gets the error code."""
        codes: list[int] = []
        self.coordinators.transactions.end(transactional_id, *producer, commit, codes.append)
        self._cluster.replicate(TRANSACTIONS)
        return codes

    def state(self, transactional_id: str = "tx") -> str:
        """Return the name of the transactional id's state, or of the error."""
        try:
            return self.coordinators.transactions.describe(transactional_id).state_name
        except KafkaError as error:
            return name_of(error.code)

    def verify(self, producer: Producer, *partitions: tuple[str, int], transactional_id: str = "tx") -> list[Any]:
        """Verify, as before an append, that the partitions are in the transaction. Return a list that gets the error
        codes of the refused partitions."""
        answers: list[Any] = []
        self.coordinators.verifier.verify(
            transactional_id,
            *producer,
            [(topic, index, 0) for topic, index in partitions],
            lambda refused: answers.append({one: error.code for one, error in refused.items()}),
            abortable=True,
        )
        return answers

    def markers(self, topic: str) -> list[tuple[int, int, bool]]:
        """Return (producer id, coordinator epoch, commit) of the markers in partition 0 of the topic."""
        log = self.logs.get(topic, 0)
        assert log is not None
        read: Any = log.read(0, 1 << 20, min_one=True, max_offset=log.log_end_offset)
        data = read.region.read() if read.region is not None else b""
        found = []
        for header in iter_batches(data):
            if header.is_control:
                (record,) = records_of(data, header)
                _, kind = struct.unpack(">hh", record.key)
                _, epoch = struct.unpack(">hi", record.value)
                found.append((header.producer_id, epoch, kind == 1))
        return found

    def close(self) -> None:
        self.coordinators.stop()
        self._scheduler.stop()
        self.logs.close()


class Clients(GroupClients):
    """Clients of consumer groups that call this group coordinator."""

    def __init__(self, coordinator: GroupCoordinator) -> None:
        self.coordinator = coordinator


class Cluster:
    """Brokers 0, 1, ... and the topics `__consumer_offsets`, `__transaction_state`, "t" and "u", each with one
    partition that all brokers replicate and broker 0 leads."""

    def __init__(self, directory: Path, brokers: int = 2) -> None:
        self.clock = ManualClock()
        self.timer = HandTimer(self.clock)
        self.network = Network(self)
        self._ids = count(1000)
        self._epochs: dict[str, int] = {}
        self.members = [Member(self, number, directory / str(number)) for number in range(brokers)]
        for topic in TOPIC_IDS:
            self.elect(topic, 0)
        for member in self.members:
            member.services.cache.is_complete = True

    def close(self) -> None:
        for member in self.members:
            member.close()

    # --- the brokers' topics and producer ids

    def get(self, topic: str) -> Topic | None:
        replicas = [member.id for member in self.members]
        return Topic(topic, TOPIC_IDS[topic], {0: replicas}) if topic in self._epochs else None

    def __contains__(self, topic: str) -> bool:
        return topic in self._epochs

    def give(self, done: Callable[[int], object], in_pool: object) -> None:
        done(next(self._ids))

    # --- the controller

    def elect(self, topic: str, leader: int, *, isr: Sequence[int] | None = None, tell: bool = True) -> None:
        """Begin the next leader epoch of partition 0 of the topic. By default all brokers are in the ISR. With
        `tell=False` the metadata caches are not updated."""
        everyone = [member.id for member in self.members]
        is_new = topic not in self._epochs
        epoch = self._epochs[topic] = self._epochs.get(topic, -1) + 1
        role = PartitionRole(topic, 0, TOPIC_IDS[topic], leader, epoch, epoch, isr or everyone, everyone, is_new=is_new)
        self._role = role
        for member in self.members:
            if member.is_alive:
                assert member.roles.apply(1, [role]) == {}
                followed = member.replicas.followed(topic, 0)
                if followed is not None and leader != NO_LEADER:
                    self._truncate(member, topic, leader)
        if tell:
            self.tell(role)

    def tell(self, *roles: PartitionRole) -> None:
        """Update the metadata caches of the live brokers, by default with the last election."""
        for member in self.members:
            if member.is_alive:
                member.roles.update_metadata(1, roles or [self._role])

    def delete(self, topic: str) -> None:
        """Remove partition 0 of the topic from all metadata caches."""
        gone = self._role._replace(topic=topic, topic_id=TOPIC_IDS[topic], leader=LEADER_DURING_DELETE)
        del self._epochs[topic]
        self.tell(gone)

    def _truncate(self, member: Member, topic: str, leader: int) -> None:
        """Truncate the member's log to the log end offset of the new leader."""
        end = self.members[leader].replicas.log_manager.get(topic, 0)
        log = member.replicas.log_manager.get(topic, 0)
        assert end is not None
        assert log is not None
        if log.log_end_offset > end.log_end_offset:
            log.truncate_to(end.log_end_offset)

    # --- the followers and the time

    def replicate(self, topic: str) -> None:
        """Copy the leader's records to the followers in the ISR. Then the leader learns their new log end offsets."""
        (leader,) = [member for member in self.members if member.is_alive and member.replicas.holds(topic, 0)]
        partition = leader.replicas.get(topic, 0)
        for member in self.members:
            followed = member.replicas.followed(topic, 0)
            if followed is None or not member.is_alive or member.id not in partition.isr:
                continue
            log = followed.log
            while log.log_end_offset < partition.log.log_end_offset:
                read: Any = partition.log.read(
                    log.log_end_offset, 1 << 20, min_one=True, max_offset=partition.log.log_end_offset
                )
                log.append_as_follower(memoryview(read.region.read()), partition.leader_epoch)
            follower_at(partition, member.id, log.log_end_offset)
        self.pass_time(0)

    def pass_time(self, seconds: float) -> None:
        self.timer.advance(seconds)
