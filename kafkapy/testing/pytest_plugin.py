"""Pytest fixtures of the package: a broker or a cluster for the whole test run, and a new topic for each test.

    def test_mine(kafkapy_broker, kafkapy_topic):
        producer = KafkaProducer(bootstrap_servers=kafkapy_broker.bootstrap_servers)
        producer.send(kafkapy_topic, b"hello")

Pytest loads this module in every run, even if no test uses it, so only the fixtures import the broker.
"""

import itertools
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from kafkapy.testing.broker import Broker
    from kafkapy.testing.cluster import Cluster

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def kafkapy_broker() -> "Iterator[Broker]":
    """Yield a running broker in this process, for all tests of the run. It has a free port and its own data directory,
    which is removed at the end."""
    from kafkapy.testing.broker import Broker

    with Broker() as broker:
        yield broker


@pytest.fixture(scope="session")
def kafkapy_cluster() -> "Iterator[Cluster]":
    """Yield a running cluster of three brokers in processes of their own, for all tests of the run. It needs a
    ZooKeeper, as kafkapy.Cluster says. A broker that a test has stopped or killed stays so until a test starts it."""
    from kafkapy.testing.cluster import Cluster

    with Cluster(3) as cluster:
        yield cluster


@pytest.fixture
def kafkapy_topic(kafkapy_broker: "Broker", request: pytest.FixtureRequest) -> Iterator[str]:
    """Yield the name of a new, empty topic with one partition. It is named after the test and deleted when the test
    ends."""
    from kafkapy.client import Admin
    from kafkapy.errors import Errors, KafkaError

    # Topic names have at most 249 characters of these kinds; the number makes truncated names unique.
    name = re.sub(r"[^a-zA-Z0-9_-]", "-", request.node.name)[:200] + f"-{next(_numbers)}"
    with Admin(kafkapy_broker.bootstrap_servers) as admin:
        admin.create_topic(name, 1)
    yield name
    with Admin(kafkapy_broker.bootstrap_servers) as admin:  # a new one: brokers close connections that are idle
        try:
            admin.delete_topics([name])
        except KafkaError as error:
            if error.code != Errors.UNKNOWN_TOPIC_OR_PARTITION:  # else the test has deleted it
                raise
