"""Connections to other brokers that require a login. The other broker is Apache Kafka 3.9.1."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest

from kafkapy.network.settings import Listener, NetworkSettings
from kafkapy.network.socket_server import SocketServer
from kafkapy.protocol.apis import METADATA
from kafkapy.replica.links import Link
from kafkapy.runtime.clock import SYSTEM_CLOCK
from kafkapy.runtime.counters import Registry
from kafkapy.runtime.disk_pool import DiskPool
from kafkapy.runtime.read_pools import ReadPools
from kafkapy.security.sasl.client import client_mechanism
from tests.harness.secured_kafka import MECHANISMS, REAUTHENTICATION_MS, SecuredKafka, jaas
from tests.replica.test_links import Answers, NoHandler

pytestmark = pytest.mark.other_runtime
LONG = 30.0


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory, tools) -> Iterator[SecuredKafka]:
    secured = SecuredKafka(tmp_path_factory.mktemp("secured"))
    try:
        secured.add_scram_users(tools)
        yield secured
    finally:
        secured.close()


@pytest.fixture
def link_of(kafka: SecuredKafka) -> Iterator[Any]:
    """Return a function that makes a link with a login to Kafka's SASL_PLAINTEXT listener."""
    pool, read_pools = DiskPool(2), ReadPools(1)
    network = SocketServer(
        [Listener("A", "127.0.0.1", 0)], NoHandler(), NetworkSettings(), Registry(), pool, read_pools, SYSTEM_CLOCK
    )
    network.bind()
    network.start()
    links: list[Link] = []

    def link(mechanism: Any) -> Link:
        address = "127.0.0.1", kafka.ports["SASL_PLAINTEXT"]
        made = Link(
            "broker 0",
            lambda: address,
            network,
            pool.submit,
            client_id="me",
            connect_timeout_s=LONG,
            mechanism=mechanism,
        )
        links.append(made)
        return made

    yield link
    for one in links:
        one.close()
    network.stop()
    pool.stop()
    read_pools.stop()


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_requests_are_answered_after_a_login(kafka, link_of, mechanism):
    settings, answers = kafka.client("SASL_PLAINTEXT", mechanism), Answers()
    link = link_of(lambda host: client_mechanism(settings, host))
    for _ in range(3):
        link.ask(METADATA, METADATA.Request(topics=[]), answers, timeout_s=LONG)
    assert [error for _, error in answers.wait(3)] == [None] * 3


def test_the_link_logs_in_again_while_requests_are_in_flight(kafka, link_of):
    """Over two login sessions, every request is answered in order, on one connection."""
    settings = kafka.client("SASL_PLAINTEXT", "SCRAM-SHA-512")
    logins: list[float] = []

    def mechanism(host: str) -> Any:
        logins.append(time.monotonic())
        return client_mechanism(settings, host)

    link = link_of(mechanism)
    asked: list[int] = []
    order: list[int] = []
    errors: list[Any] = []
    done = threading.Event()
    until = time.monotonic() + 2.5 * REAUTHENTICATION_MS / 1000

    def ask(number: int) -> None:
        def answered(response: Any, error: Any) -> None:
            order.append(number)
            errors.extend([error] if error is not None else [])
            if time.monotonic() < until and error is None:
                ask(number + 10)
            elif len(order) == len(asked):
                done.set()

        asked.append(number)
        link.ask(METADATA, METADATA.Request(topics=[]), answered, timeout_s=LONG)

    for number in range(10):
        ask(number)
    assert done.wait(LONG), (errors, len(order))
    assert not errors
    assert order == sorted(order)
    assert len(logins) >= 3
    between = [after - before for before, after in pairwise(logins)]
    assert min(between) >= 0.8 * REAUTHENTICATION_MS / 1000, between


def test_a_wrong_password_fails_the_request_and_is_logged_once(kafka, link_of, caplog):
    settings = kafka.client("SASL_PLAINTEXT", "PLAIN")
    settings["sasl.jaas.config"] = jaas("PLAIN", username="alice", password="wrong-password")
    link, answers = link_of(lambda host: client_mechanism(settings, host)), Answers()
    for number in range(1, 3):
        link.ask(METADATA, METADATA.Request(topics=[]), answers, timeout_s=LONG)
        answers.wait(number)
    reason = "the login at broker 0 failed: Authentication failed: Invalid username or password"
    assert [str(error) for _, error in answers.got] == [reason] * 2
    assert [record.getMessage() for record in caplog.records] == [reason]
