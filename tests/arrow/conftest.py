"""Where the plugin's broker is."""

import pytest

from kafkapy.testing.broker import Broker


@pytest.fixture
def servers(kafkapy_broker: Broker) -> str:
    return kafkapy_broker.bootstrap_servers
