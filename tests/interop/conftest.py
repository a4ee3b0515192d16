"""Fixtures: one broker, and one client of each kind, for a test session.

A test names the abilities that it needs, and runs with every client that has them.
"""

import re
from collections.abc import Iterator
from itertools import count

import pytest

from tests.harness import brokers
from tests.harness.clients.base import Client
from tests.harness.clients.registry import KINDS, Clients
from tests.harness.members import Hosts
from tests.harness.wire import Wire


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "needs(*abilities): run with every client that has these abilities")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrize a test with every client that has its abilities, and with the client's codecs if it needs one."""
    if "client" not in metafunc.fixturenames:
        return
    needs = {ability for mark in metafunc.definition.iter_markers("needs") for ability in mark.args}
    able = [kind for kind in KINDS.values() if needs <= kind.abilities]
    assert able, f"no client can do {needs}"
    if "codec" in metafunc.fixturenames:
        metafunc.parametrize(
            ("client", "codec"), [(kind.name, codec) for kind in able for codec in kind.codecs], indirect=["client"]
        )
    else:
        metafunc.parametrize("client", [kind.name for kind in able], indirect=True)


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[brokers.Broker]:
    """Start the broker that all interop tests share. Check that it stops cleanly at the end."""
    running = brokers.start(tmp_path_factory.mktemp("broker"))
    yield running
    running.stop()


@pytest.fixture(scope="session")
def clients(broker: brokers.Broker) -> Iterator[Clients]:
    """Return all clients, by name."""
    running = Clients(broker.bootstrap)
    yield running
    running.close()


@pytest.fixture
def client(request: pytest.FixtureRequest, clients: Clients) -> Client:
    """Return the client that this test runs with."""
    return clients[request.param]


@pytest.fixture(scope="session")
def admin(clients: Clients) -> Client:
    """Return a client that creates topics for clients that cannot, and checks the results of other clients."""
    return clients["confluent-kafka"]


@pytest.fixture(scope="session")
def coordinator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[brokers.Broker]:
    """Start the broker that the tests of groups and transactions share. Check that it stops cleanly at the end."""
    running = brokers.start(tmp_path_factory.mktemp("coordinator"), brokers.QUICK)
    yield running
    running.stop()


@pytest.fixture(scope="session")
def coordinated(coordinator: brokers.Broker) -> Iterator[Clients]:
    """Return all clients of the broker `coordinator`, by name."""
    running = Clients(coordinator.bootstrap)
    yield running
    running.close()


@pytest.fixture(scope="session")
def shared_hosts(coordinator: brokers.Broker) -> Iterator[Hosts]:
    """Return the processes of the fixture `hosts`."""
    running = Hosts(coordinator.bootstrap)
    yield running
    running.close()


@pytest.fixture
def hosts(shared_hosts: Hosts) -> Iterator[Hosts]:
    """Return processes with group members, by kind of client. All members leave at the end of the test."""
    yield shared_hosts
    shared_hosts.end_test()


@pytest.fixture
def wire(coordinator: brokers.Broker) -> Iterator[Wire]:
    """Open a connection to the broker `coordinator`, for requests built by hand."""
    with Wire(coordinator.bootstrap) as connection:
        yield connection


@pytest.fixture
def topic(wire: Wire, topic_name: str) -> str:
    """Create a topic of two partitions on the broker `coordinator`."""
    wire.create_topic(topic_name, 2)
    return topic_name


@pytest.fixture
def name(topic_name: str) -> str:
    """Return a transactional id that no other test uses."""
    return f"tx-{topic_name}"


_numbers = count(1)


@pytest.fixture
def topic_name(request: pytest.FixtureRequest) -> str:
    """Return a name that no other test uses."""
    readable = re.sub(r"[^a-zA-Z0-9._-]+", "-", request.node.name).strip("-")[:120]
    return f"{readable}-{next(_numbers)}"
