"""A mirror between clusters that need TLS and a login."""

import time

import pytest

import kafkapy
from kafkapy.client import AuthenticationFailed, Consumer, RecordProducer
from kafkapy.client.original.filters import Whitelist
from kafkapy.mirror.mirror import Mirror
from kafkapy.mirror.options import MirrorOptions
from kafkapy.mirror.source_settings import read_source
from kafkapy.mirror.target_settings import read_target

USERS = {"alice": "secret"}


@pytest.fixture(scope="module")
def secured():
    settings = {"offsets.topic.num.partitions": 2, "transaction.state.log.num.partitions": 2}
    with (
        kafkapy.Broker(tls=True, users=USERS, config=settings) as source,
        kafkapy.Broker(users=USERS, config=settings) as target,
    ):
        yield source, target


def file_for(broker, mechanism, **more):
    return {"bootstrap.servers": broker.bootstrap_servers, **broker.client_properties("alice", mechanism), **more}


@pytest.mark.parametrize("exactly_once", [False, True])
def test_records_are_copied(secured, exactly_once):
    source, target = secured
    topic = f"orders-{exactly_once}"
    with RecordProducer(source.bootstrap_servers, security=source.client_properties()) as producer:
        for number in range(100):
            producer.send(topic, b"%d" % number)
    reads = read_source(file_for(source, "SCRAM-SHA-256", **{"group.id": f"g-{topic}"}))
    writes = read_target(file_for(target, "SCRAM-SHA-512"))
    found = []
    with (
        Mirror([reads], writes, Whitelist(topic), MirrorOptions(exactly_once=exactly_once, commit_interval_s=0.1)),
        Consumer(target.bootstrap_servers, isolation="read_committed", security=target.client_properties()) as consumer,
    ):
        deadline = time.monotonic() + 60
        while len(found) < 100 and time.monotonic() < deadline:
            if topic not in consumer.cluster.topics:
                consumer.cluster.refresh()
                if topic in consumer.cluster.topics:
                    consumer.assign_topic(topic)
                continue
            found += [int(record.value) for record in consumer.poll()]
    assert sorted(found) == list(range(100))


def test_a_wrong_password_ends_the_mirror(secured):
    source, target = secured
    wrong = file_for(source, "PLAIN", **{"group.id": "g"})
    wrong["sasl.jaas.config"] = wrong["sasl.jaas.config"].replace('password="secret"', 'password="wrong"')
    mirror = Mirror([read_source(wrong)], read_target(file_for(target, "PLAIN")), Whitelist("t"), MirrorOptions())
    with pytest.raises(AuthenticationFailed, match="Invalid username or password"):
        mirror.start()
