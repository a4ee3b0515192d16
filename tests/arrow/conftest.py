"""The address of the broker that the pytest plugin starts."""

import pytest

from kafkapy.testing.broker import Broker


@pytest.fixture
def servers(kafkapy_broker: Broker) -> str:
    return kafkapy_broker.bootstrap_servers
