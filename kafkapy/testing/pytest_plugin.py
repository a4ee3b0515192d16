"""Fixtures that come with the package: a broker for the whole test run, and a new topic for a test.

    def test_mine(kafkapy_broker, kafkapy_topic):
        producer = KafkaProducer(bootstrap_servers=kafkapy_broker.bootstrap_servers)
        producer.send(kafkapy_topic, b"hello")

pytest loads this in every run, also in those that use none of it, so it imports the broker in the fixtures only.
"""

import itertools
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from kafkapy.testing.broker import Broker

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def kafkapy_broker() -> "Iterator[Broker]":
    """A broker in this process, on a free port and in a directory of its own; stopped and removed at the end."""
    from kafkapy.testing.broker import Broker

    with Broker() as broker:
        yield broker


@pytest.fixture
def kafkapy_topic(kafkapy_broker: "Broker", request: pytest.FixtureRequest) -> Iterator[str]:
    """The name of a new, empty topic with one partition, called after the test; deleted after it."""
    from kafkapy.client import Admin

    # Topic names have at most 249 characters, of these kinds; the number keeps names that are cut off apart.
    name = re.sub(r"[^a-zA-Z0-9_-]", "-", request.node.name)[:200] + f"-{next(_numbers)}"
    with Admin(kafkapy_broker.bootstrap_servers) as admin:
        admin.create_topic(name, 1)
        yield name
        admin.delete_topics([name])
