"""Groups of Kafka's old consumers and kafkapy's: members that join, leave and are killed always share the partitions.

`KAFKAPY_FAULT_ROUNDS=20 python -m pytest tests/zookeeper/test_original_groups.py -s` runs the full length.
"""

import json
import os
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from kafkapy.client import Admin, Cluster, RecordProducer
from kafkapy.client.administration.group_admin import GroupAdmin
from kafkapy.client.original.assignment import STRATEGIES
from kafkapy.client.original.znodes.subscriptions import read_subscription
from kafkapy.errors import KafkaError
from tests.harness.original import OWN, Member, Place
from tests.harness.waiting import eventually
from tests.harness.zookeeper import SESSION_MS
from tests.zookeeper.conftest import Start

TOPIC = "t"
PARTITIONS = 6
MORE = {"t": 6, "u": 3}  # for roundrobin, which assigns the partitions of all topics together
KINDS = (OWN, "0.8.2.2", "0.10.2.2")
A_FEW = 4


@pytest.fixture
def bootstrap(start: Start) -> str:
    more = {"zookeeper_session_timeout_ms": str(5 * SESSION_MS), "offsets_topic_num_partitions": "1"}
    bootstrap = start(**more).bootstrap_servers
    with Admin(bootstrap) as admin:
        for topic, count in MORE.items():
            admin.create_topic(topic, count)
    return bootstrap


class Group:
    """A group, observed by its znodes and the output of its members."""

    def __init__(self, connect: str, bootstrap: str, directory: Path) -> None:
        self.topics = {TOPIC: PARTITIONS}
        self.strategy = "range"
        self.connect = connect
        self.directory = directory
        self.zk = KazooClient(connect)
        self.zk.start()
        self.members: list[Member] = []
        self.gone: list[Member] = []
        self.producer = RecordProducer(bootstrap)
        self.cluster = Cluster(bootstrap)
        self.admin = GroupAdmin(self.cluster)
        self.produced = 0

    def close(self) -> None:
        for member in self.members:
            member.kill()
        self.producer.close()
        self.cluster.close()
        self.zk.stop()
        self.zk.close()

    def join(self, kind: str, streams: int = 1, **settings: str) -> Member:
        name = f"m{len(self.members) + len(self.gone)}-{kind}"
        settings["partition.assignment.strategy"] = self.strategy
        wanted = TOPIC if len(self.topics) == 1 else f"^{'|'.join(self.topics)}"
        member = Member(kind, self.directory, self.connect, "g", name, wanted, streams, **settings)
        self.members.append(member)
        member.wait_until_ready()
        return member

    def part(self, member: Member, how: str) -> None:
        self.members.remove(member)
        self.gone.append(member)
        getattr(member, how)()

    def produce(self, count: int) -> None:
        places = [(topic, number) for topic, partitions in self.topics.items() for number in range(partitions)]
        for number in range(count):
            topic, partition = places[number % len(places)]
            self.producer.send(topic, b"x", partition=partition)
        self.producer.flush()
        self.produced += count

    def seen(self) -> Counter[Place]:
        return sum((member.seen for member in self.members + self.gone), Counter())

    def all_seen(self) -> bool:
        return len(self.seen()) == self.produced

    def kept(self, home: str) -> int:
        """Return the sum of the offsets that are committed in ZooKeeper or in Kafka."""
        if home == "kafka":
            found = self.admin.offsets(["g"])["g"]
            return 0 if isinstance(found, KafkaError) else sum(one.offset for one in found.values())
        path = f"/consumers/g/offsets/{TOPIC}"
        return sum(int(self.zk.get(f"{path}/{name}")[0]) for name in self.zk.get_children(path))

    def wait_until_kept(self, home: str) -> None:
        eventually(lambda: self.kept(home) == self.produced, what=f"not all is committed in {home}")

    def is_quiet(self) -> bool:
        """Return True if the live members are registered and own the partitions that the assignment gives them."""
        ids, owners = "/consumers/g/ids", "/consumers/g/owners"
        try:
            registered = {name: self.zk.get(f"{ids}/{name}")[0] for name in self.zk.get_children(ids)}
            owned = {
                (topic, name): self.zk.get(f"{owners}/{topic}/{name}")[0].decode()
                for topic in self.topics
                for name in self.zk.get_children(f"{owners}/{topic}")
            }
        except NoNodeError:
            return False
        streams = {name: read_subscription(data).streams_of(self.topics) for name, data in registered.items()}
        partitions = {topic: [str(number) for number in range(count)] for topic, count in self.topics.items()}
        computed = STRATEGIES[self.strategy](streams, partitions)
        live = {member.consumer_id for member in self.members}
        return set(registered) == live and owned == {where: str(thread) for where, thread in computed.items()}


@pytest.fixture
def group(connect: str, bootstrap: str, tmp_path: Path) -> Iterator[Group]:
    group = Group(connect, bootstrap, tmp_path)
    yield group
    group.close()


def test_members_of_all_kinds_join_leave_and_are_killed(group: Group) -> None:
    join_leave_and_kill(group, int(os.environ.get("KAFKAPY_FAULT_ROUNDS", A_FEW)))


def test_members_of_all_kinds_share_by_roundrobin(group: Group) -> None:
    group.topics, group.strategy = MORE, "roundrobin"
    join_leave_and_kill(group, int(os.environ.get("KAFKAPY_FAULT_ROUNDS", 2)))


def join_leave_and_kill(group: Group, rounds: int) -> None:
    choose = random.Random(7)
    again = {"join": 0, "leave": 0, "kill": 0}  # number of records read a second time, by the preceding event
    did: Counter[str] = Counter()
    for kind in KINDS:
        group.join(kind)
    for number in range(rounds):
        before = group.seen()
        group.produce(300)
        can = ["join"] * (len(group.members) < 5) + ["leave", "kill"] * (len(group.members) > 2)
        what = choose.choice(can)
        if what == "join":
            member = group.join(KINDS[number % 3], streams=choose.choice([1, 2]))
        else:
            member = choose.choice(group.members)
            group.part(member, what)
        group.produce(300)
        step = f"round {number}: {what} of {member.consumer_id}"
        eventually(group.is_quiet, seconds=40, what=f"{step}: not every partition is with its owner")
        group.produce(300)
        eventually(group.all_seen, seconds=40, what=f"{step}: not every record has come")
        did[f"{what} {member.kind}"] += 1
        again[what] += group.seen().total() - before.total() - 900
    print(json.dumps({"rounds": rounds, "records": group.produced, "did": did, "again": again}))
    assert len(group.seen()) == group.produced


IN_ZOOKEEPER = {"offsets.storage": "zookeeper"}
IN_BOTH = {"offsets.storage": "kafka", "dual.commit.enabled": "true"}
IN_KAFKA = {"offsets.storage": "kafka", "dual.commit.enabled": "false"}


@pytest.mark.parametrize("version", ["0.8.2.2", "0.10.2.2"])
def test_a_group_moves_its_offsets_to_kafka_and_back_one_member_after_the_other(group: Group, version: str) -> None:
    """The steps are those of Kafka's documentation: meanwhile, members of the group have different settings."""
    kinds = [version, OWN]
    for kind in kinds:
        group.join(kind, 1, **IN_ZOOKEEPER)
    for settings, homes in [
        (IN_BOTH, ["kafka", "zookeeper"]),
        (IN_KAFKA, ["kafka"]),
        (IN_BOTH, ["kafka", "zookeeper"]),
        (IN_ZOOKEEPER, ["zookeeper"]),
    ]:
        in_zookeeper = group.kept("zookeeper") if group.produced else 0
        for kind in kinds:
            group.produce(120)
            group.part(next(member for member in group.members if member.kind == kind), "leave")
            group.join(kind, 1, **settings)
            eventually(group.is_quiet, seconds=40, what=f"{kind} with {settings}")
        group.produce(120)
        eventually(group.all_seen, seconds=40, what=f"not every record has come with {settings}")
        for home in homes:
            group.wait_until_kept(home)
        if homes == ["kafka"]:
            assert in_zookeeper <= group.kept("zookeeper") < group.produced
    assert group.kept("kafka") < group.produced
    assert len(group.seen()) == group.produced
