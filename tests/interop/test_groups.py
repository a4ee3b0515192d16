"""Consumer groups of one kind of client: members join, leave, die and stall, and every record is processed."""

import pytest

from tests.harness import brokers
from tests.harness.clients.confluent import Confluent
from tests.harness.clients.registry import Clients
from tests.harness.members import COOPERATIVE_KINDS, FENCING_KINDS, KINDS, STATIC_KINDS, Feed, Group, Hosts
from tests.harness.ownership import repeated_without_reason, violations

PARTITIONS = 6
WAYS = [
    *((kind, "roundrobin" if kind == "aiokafka" else "range") for kind in KINDS),
    *((kind, "cooperative-sticky") for kind in COOPERATIVE_KINDS),
]


@pytest.fixture
def admin(coordinated: Clients) -> Confluent:
    client = coordinated["confluent-kafka"]
    assert isinstance(client, Confluent)
    return client


def has_worked(group: Group, member: str) -> bool:
    return any(one["member"] == member and one["event"] == "committed" for one in group.events)


def group_of(admin: Confluent, name: str, assignor: str = "range", partitions: int = PARTITIONS) -> Group:
    """Create a topic. Return a group with the same name."""
    admin.create_topic(name, partitions)
    return Group(name, name, partitions, assignor=assignor)


@pytest.mark.parametrize(("kind", "assignor"), WAYS)
def test_each_record_is_processed_once_while_members_join_and_leave(
    kind: str, assignor: str, admin: Confluent, hosts: Hosts, topic_name: str, coordinator: brokers.Broker
) -> None:
    group = group_of(admin, topic_name, assignor)
    host = hosts.shared(kind)
    with Feed(coordinator.bootstrap, topic_name, PARTITIONS) as feed:
        for name in "abc":
            group.join(name, host)
            group.settle()
        group.leave("a")
        group.settle()
        group.join("d", host)
        group.settle()
    group.drain(feed.ends)
    group.until(lambda: admin.committed(topic_name, topic_name) == feed.ends, "the last commits")
    group.leave("b", "c", "d")
    assert not violations(group.events)
    assert not repeated_without_reason(group.events)


@pytest.mark.parametrize("kind", KINDS)
def test_live_members_take_over_from_a_dead_and_a_stalled_member(
    kind: str, admin: Confluent, hosts: Hosts, topic_name: str, coordinator: brokers.Broker
) -> None:
    group = group_of(admin, topic_name)
    frozen, doomed = hosts.own(kind), hosts.own(kind)
    with Feed(coordinator.bootstrap, topic_name, PARTITIONS) as feed:
        group.join("living", hosts.shared(kind), session_ms=2000)
        group.join("frozen", frozen, session_ms=2000)
        group.join("doomed", doomed, session_ms=2000)
        group.settle()
        group.lose("doomed")
        frozen.freeze()
        group.settle(among=["living"])
        frozen.thaw()
        group.members["frozen"].owned.clear()  # the member will notice soon that it has lost its partitions
        group.settle()
    group.drain(feed.ends)
    group.leave("frozen", "living")
    assert not violations(group.events)
    assert admin.committed(topic_name, topic_name) == feed.ends


@pytest.mark.parametrize("kind", STATIC_KINDS)
def test_a_static_member_that_rejoins_gets_its_partitions_without_a_rebalance(
    kind: str, admin: Confluent, hosts: Hosts, topic_name: str, coordinator: brokers.Broker
) -> None:
    group = group_of(admin, topic_name)
    with Feed(coordinator.bootstrap, topic_name, PARTITIONS) as feed:
        group.join("other", hosts.shared(kind), instance="other")
        group.join("first", hosts.own(kind), instance="one")
        group.settle()
        group.join("twin", hosts.shared(kind), instance="twin")
        group.settle()
        before = group.members["other"].generation, group.members["other"].assignments
        dead = group.lose("first")
        again = group.join("second", hosts.shared(kind), instance="one")
        group.until(lambda: again.owned == dead.owned, "the partitions of the one before")
        assert again.generation == dead.generation
        assert again.id != dead.id
    group.drain(feed.ends)
    assert (group.members["other"].generation, group.members["other"].assignments) == before
    assert not violations(group.events)


@pytest.mark.parametrize("kind", FENCING_KINDS)
def test_of_two_members_with_the_same_instance_id_the_first_is_fenced(
    kind: str, admin: Confluent, hosts: Hosts, topic_name: str, coordinator: brokers.Broker
) -> None:
    group = group_of(admin, topic_name)
    with Feed(coordinator.bootstrap, topic_name, PARTITIONS) as feed:
        first = group.join("first", hosts.shared(kind), instance="one")
        group.settle()
        second = group.join("second", hosts.shared(kind), instance="one")
        group.until(lambda: first.ended, "the first to end")
        assert first.ended is not None
        assert first.ended["code"] == 82 or "fenced" in first.ended["message"], first.ended
        group.until(lambda: second.owned == set(range(PARTITIONS)), "the second to have it all")
    group.drain(feed.ends)
    group.leave("second")


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "franz-go"])  # franz-go has no max.poll.interval.ms
def test_a_member_that_does_not_poll_for_too_long_loses_its_partitions_and_rejoins(
    kind: str, admin: Confluent, hosts: Hosts, topic_name: str, coordinator: brokers.Broker
) -> None:
    group = group_of(admin, topic_name)
    with Feed(coordinator.bootstrap, topic_name, PARTITIONS) as feed:
        group.join("busy", hosts.shared(kind), session_ms=2000, rebalance_ms=2000)
        group.settle()
        group.join("idle", hosts.shared(kind), session_ms=2000, rebalance_ms=2000)
        group.settle()
        # Wait until the member reads. Otherwise kafka-python may resume at an offset reset from before the stall.
        group.until(lambda: has_worked(group, "idle"), "idle to have records")
        group.tell("idle", "stall")
        group.settle(among=["busy"])
        group.members["idle"].owned.clear()  # the member will notice soon that it has lost its partitions
        group.tell("idle", "resume")
        group.settle()
    group.drain(feed.ends)
    group.leave("busy", "idle")
    assert not violations(group.events)
    assert admin.committed(topic_name, topic_name) == feed.ends
