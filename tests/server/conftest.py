"""A broker in this process, and a connection to it."""

import pytest

from tests.harness.wire import Wire
from tests.server.requests import start_broker


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    server = start_broker(tmp_path_factory.mktemp("broker"), broker_id=0)
    yield server
    server.stop()


@pytest.fixture
def wire(broker):
    with Wire(broker.bootstrap_servers) as connection:
        yield connection
