"""Groups with members of every kind of client, each of which must lead, follow, and take over from the others."""

import random
from pathlib import Path

import pytest

from tests.harness import brokers
from tests.harness.clients.confluent import Confluent
from tests.harness.clients.registry import Clients
from tests.harness.members import COOPERATIVE_KINDS, KINDS, Feed, Group, Hosts
from tests.harness.ownership import violations

pytestmark = pytest.mark.other_runtime

PARTITIONS = 14


LEADERS = [
    *(("range", kind) for kind in KINDS),
    *(("cooperative-sticky", kind) for kind in COOPERATIVE_KINDS),
    ("roundrobin", "aiokafka"),
]


@pytest.mark.parametrize(("assignor", "leader"), LEADERS)
def test_clients_of_every_kind_follow_a_leader_and_continue_without_it(
    assignor: str,
    leader: str,
    coordinator: brokers.Broker,
    coordinated: Clients,
    hosts: Hosts,
    topic_name: str,
) -> None:
    admin = coordinated["confluent-kafka"]
    assert isinstance(admin, Confluent)
    admin.create_topic(topic_name, PARTITIONS)
    group = Group(topic_name, topic_name, PARTITIONS, assignor=assignor)
    others = [kind for kind in (COOPERATIVE_KINDS if assignor == "cooperative-sticky" else KINDS) if kind != leader]
    with Feed(coordinator.bootstrap, topic_name, PARTITIONS) as feed:
        group.join(leader, hosts.shared(leader))
        group.settle()  # the first member stays the leader until it leaves
        for kind in others:
            group.join(kind, hosts.shared(kind))
        group.settle()
        group.leave(leader)
        group.settle()
    group.drain(feed.ends)
    group.until(lambda: admin.committed(topic_name, topic_name) == feed.ends, "the last commits")
    group.leave(*others)
    assert not violations(group.events)


def test_members_of_every_kind_die_and_stall_in_one_group(
    coordinator: brokers.Broker, coordinated: Clients, hosts: Hosts, topic_name: str
) -> None:
    admin = coordinated["confluent-kafka"]
    assert isinstance(admin, Confluent)
    admin.create_topic(topic_name, PARTITIONS)
    group = Group(topic_name, topic_name, PARTITIONS)
    rng = random.Random(topic_name)
    own = {kind: hosts.own(kind) for kind in KINDS}
    with Feed(coordinator.bootstrap, topic_name, PARTITIONS) as feed:
        for kind in KINDS:
            group.join(kind, own[kind], session_ms=2000)
        group.settle()
        doomed, frozen = list(KINDS[:3]), list(KINDS[3:6])
        rng.shuffle(doomed)
        for kind in doomed:
            group.lose(kind)
        for kind in frozen:
            own[kind].freeze()
        rest = [kind for kind in group.members if kind not in frozen]
        group.settle(among=rest)
        for kind in doomed:
            group.join(f"{kind} again", hosts.shared(kind), session_ms=2000)
        group.settle(among=[name for name in group.members if name not in frozen])
        for kind in frozen:
            group.members[kind].owned.clear()  # the member will notice soon that it has lost its partitions
            own[kind].thaw()
        group.settle()
    group.drain(feed.ends)
    group.leave(*group.members)
    assert not violations(group.events)
    assert admin.committed(topic_name, topic_name) == feed.ends


def test_a_group_of_every_kind_survives_broker_restarts(tmp_path: Path, topic_name: str) -> None:
    broker = brokers.start(tmp_path, brokers.QUICK)
    clients, hosts = Clients(broker.bootstrap), Hosts(broker.bootstrap)
    try:
        admin = clients["confluent-kafka"]
        assert isinstance(admin, Confluent)
        admin.create_topic(topic_name, PARTITIONS)
        group = Group(topic_name, topic_name, PARTITIONS)
        with Feed(broker.bootstrap, topic_name, PARTITIONS) as feed:
            for kind in KINDS:
                group.join(kind, hosts.shared(kind), session_ms=6000 if kind == "kafkajs" else 30_000)
            group.settle()
            for _ in range(2):  # kafkajs rejoins with a new member id
                if isinstance(broker, brokers.KafkapyBroker):
                    broker.kill()
                else:
                    broker.stop()  # after a kill, ZooKeeper would keep the registration for a while
                broker = brokers.start(tmp_path, brokers.QUICK, port=broker.port)
                before = dict(feed.ends)
                group.drain_at_least(before)
            group.settle()
        group.drain(feed.ends)
        group.until(lambda: admin.committed(topic_name, topic_name) == feed.ends, "the last commits")
        group.leave(*KINDS)
        assert not violations(group.events)
    finally:
        hosts.close()
        clients.close()
        broker.stop()
