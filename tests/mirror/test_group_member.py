"""A member of a group on the broker, while it has no partitions."""

import time

import pytest

from kafkapy.client import Admin, GroupConsumer, RebalanceListener, RecordProducer
from kafkapy.client.original.filters import Whitelist
from kafkapy.mirror import group_status
from kafkapy.mirror.group_member import GroupMember
from kafkapy.mirror.source_settings import read_source
from kafkapy.testing.broker import Broker

PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def source():
    with Broker(group_initial_rebalance_delay_ms=0, offsets_topic_num_partitions=2) as broker:
        with Admin(broker.bootstrap_servers) as admin, RecordProducer(broker.bootstrap_servers) as producer:
            for topic in ("orders", "other"):
                admin.create_topic(topic, 2)
                for number in range(100):
                    producer.send(topic, b"", partition=number % 2)
        yield broker.bootstrap_servers


@pytest.fixture
def member_of(source, request, monkeypatch):
    monkeypatch.setattr(group_status, "INTERVAL_S", 0.0)
    consumers = []

    def make(**more):
        settings = {"bootstrap.servers": source, "group.id": request.node.name, **more}
        consumers.append(GroupMember(read_source(settings), Whitelist("orders")))
        consumers[-1].open(Quiet())
        return consumers[-1]

    yield make
    for member in consumers:
        member.close()


class Quiet:
    def on_taken(self, partitions):
        pass

    before_release = on_lost = on_taken


def poll_until(member, condition):
    deadline = time.monotonic() + PATIENCE_S
    while not (found := condition()):
        assert time.monotonic() < deadline, "it does not happen"
        member.poll(0.05)
    return found


def test_a_joining_member_names_the_member_that_does_not_rejoin_and_the_real_lag(source, member_of, request):
    with GroupConsumer(source, request.node.name, auto_offset_reset="earliest", auto_commit=False) as dead:
        dead.subscribe(["orders"], RebalanceListener())
        while not dead.poll(0.1):
            pass
        dead.commit({("orders", 0): 20})
        member = member_of()
        # `dead` sends heartbeats and does not rejoin: the group waits for it, as for a killed member.
        waiting = poll_until(member, lambda: (found := member.waiting()) and found.whose and found)
        assert dead.group_metadata().member_id in waiting.whose
        assert " at 127.0.0.1" in waiting.whose
        assert waiting.what == f"partitions of group {request.node.name}"
        assert waiting.lag == 80
        assert member.lags() == {}
    poll_until(member, lambda: member.waiting() is None)
    assert sum(member.lags().values()) <= 80


def test_a_member_without_partitions_names_the_members_that_read_them(member_of):
    first = member_of()
    poll_until(first, lambda: first.waiting() is None)
    others = [member_of(), member_of()]

    def settled():
        for one in (first, *others):
            one.poll(0.05)
        idle = [one for one in (first, *others) if one.waiting() is not None]
        return len(idle) == 1 and idle[0].waiting().whose.startswith("read by ") and idle[0]

    idle = poll_until(first, settled)
    assert idle.waiting().whose.count(" at 127.0.0.1") == 2


def test_the_lag_is_unknown_if_no_broker_answers(member_of, monkeypatch):
    member = member_of()
    monkeypatch.setattr(group_status.GroupAdmin, "describe", refuse)
    waiting = member.waiting()
    assert (waiting.whose, waiting.lag) == ("", None)


def refuse(*_):
    raise group_status.ClientError("nobody is there")
