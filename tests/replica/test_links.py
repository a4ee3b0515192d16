"""Requests to other brokers are sent in order, several can be in flight, and they fail without a response."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from kafkapy.network.settings import Listener, NetworkSettings
from kafkapy.network.socket_server import SocketServer
from kafkapy.protocol.apis import CREATE_TOPICS, FIND_COORDINATOR, METADATA, Api
from kafkapy.replica.links import Link, LinkError
from kafkapy.runtime.clock import SYSTEM_CLOCK
from kafkapy.runtime.counters import Registry
from kafkapy.runtime.disk_pool import DiskPool
from kafkapy.runtime.read_pools import ReadPools
from kafkapy.testing.broker import Broker

LONG = 30.0


class Answers:
    """Collects the results of requests."""

    def __init__(self) -> None:
        self.got: list[tuple[Any, LinkError | None]] = []
        self._news = threading.Condition()

    def __call__(self, response: Any, error: LinkError | None) -> None:
        with self._news:
            self.got.append((response, error))
            self._news.notify_all()

    def wait(self, count: int = 1) -> list[tuple[Any, LinkError | None]]:
        with self._news:
            assert self._news.wait_for(lambda: len(self.got) >= count, LONG), self.got
        return self.got


@pytest.fixture
def network() -> Iterator[SocketServer]:
    pool, read_pools = DiskPool(1), ReadPools(1)
    server = SocketServer(
        [Listener("A", "127.0.0.1", 0)], NoHandler(), NetworkSettings(), Registry(), pool, read_pools, SYSTEM_CLOCK
    )
    server.bind()
    server.start()
    yield server
    server.stop()
    pool.stop()
    read_pools.stop()


class NoHandler:
    def handle(self, connection: Any, frames: Any) -> Any:
        raise AssertionError("nobody connects")

    end_turn = handle


def link_to(network: SocketServer, address: Any, **how: Any) -> Link:
    run = how.pop("run", lambda fn, *args: fn(*args))
    return Link(
        "broker 9",
        address if callable(address) else lambda: address,
        network,
        run,
        client_id="me",
        connect_timeout_s=LONG,
    )


def address_of(broker: Broker) -> tuple[str, int]:
    host, _, port = broker.bootstrap_servers.rpartition(":")
    return host, int(port)


def test_requests_are_answered_in_their_order_in_the_highest_version_of_both(
    network: SocketServer, kafkapy_broker: Broker
) -> None:
    link, answers = link_to(network, address_of(kafkapy_broker)), Answers()
    versions: list[int] = []

    def metadata(version: int) -> Any:
        versions.append(version)
        return METADATA.Request(topics=[])

    for number in range(20):
        if number % 2:
            link.ask(METADATA, metadata, answers, timeout_s=LONG)
        else:
            link.ask(FIND_COORDINATOR, FIND_COORDINATOR.Request(coordinator_keys=["g"]), answers, timeout_s=LONG)
    got = answers.wait(20)
    kinds = [type(response).__name__ for response, error in got if error is None]
    assert kinds == ["FindCoordinatorResponse", "MetadataResponse"] * 10
    assert set(versions) == {METADATA.max_version}
    versions.clear()
    link.ask(METADATA, metadata, answers, timeout_s=LONG, versions=(0, 4))
    answers.wait(21)
    assert versions == [4]


def test_a_host_name_is_looked_up_on_another_thread(network: SocketServer, kafkapy_broker: Broker) -> None:
    ran: list[Any] = []

    def run(fn: Any, *args: Any) -> None:
        ran.append(args)
        threading.Thread(target=fn, args=args).start()

    answers = Answers()
    _, port = address_of(kafkapy_broker)
    link_to(network, ("localhost", port), run=run).ask(METADATA, METADATA.Request(), answers, timeout_s=LONG)
    ((response, error),) = answers.wait()
    assert error is None
    assert response.brokers
    assert ran == [(("localhost", port),)]


def test_a_host_name_that_is_not_found_fails_the_request(network: SocketServer) -> None:
    answers = Answers()
    link_to(network, ("no.such.host.invalid", 9092)).ask(METADATA, METADATA.Request(), answers, timeout_s=LONG)
    assert "host name of broker 9 at no.such.host.invalid:9092" in str(answers.wait()[0][1])


def test_a_request_that_the_other_broker_does_not_serve_fails_alone(
    network: SocketServer, kafkapy_broker: Broker
) -> None:
    link, answers = link_to(network, address_of(kafkapy_broker)), Answers()
    unknown = Api(999, "Unknown", "56_alter_partition.schema")
    link.ask(unknown, unknown.Request(), answers, timeout_s=LONG)
    link.ask(CREATE_TOPICS, CREATE_TOPICS.Request(), answers, timeout_s=LONG, versions=(99, 99))
    link.ask(METADATA, METADATA.Request(), answers, timeout_s=LONG)
    first, second, third = answers.wait(3)
    assert "broker 9 serves Unknown" in str(first[1])
    assert "not v99 to v99" in str(second[1])
    assert third[1] is None


def test_requests_fail_when_no_broker_listens_at_the_address(network: SocketServer) -> None:
    with socket.socket() as bound:  # bound without listening, so that no other program uses the port
        bound.bind(("127.0.0.1", 0))
        address = bound.getsockname()
        answers = Answers()
        link = link_to(network, address)
        for _ in range(2):  # the second request tries again
            link.ask(METADATA, METADATA.Request(), answers, timeout_s=LONG)
        for _, error in answers.wait(2):
            assert f"no connection to broker 9 at 127.0.0.1:{address[1]}" in str(error)


def test_a_broker_without_an_address_is_not_alive(network: SocketServer) -> None:
    answers = Answers()
    link_to(network, lambda: None).ask(METADATA, METADATA.Request(), answers, timeout_s=LONG)
    assert str(answers.wait()[0][1]) == "broker 9 is not alive"


def test_a_time_out_fails_all_requests_of_the_connection(network: SocketServer) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        answers = Answers()
        link = Link(
            "broker 9", silent.getsockname, network, lambda fn, *args: fn(*args), client_id="me", connect_timeout_s=0.05
        )
        for _ in range(3):
            link.ask(METADATA, METADATA.Request(), answers, timeout_s=LONG)
        assert [str(error) for _, error in answers.wait(3)] == ["the connection to broker 9 was lost"] * 3


def test_after_a_lost_connection_the_next_request_connects_to_the_present_address(
    network: SocketServer, kafkapy_broker: Broker
) -> None:
    answers = Answers()
    with socket.create_server(("127.0.0.1", 0)) as hangs_up:
        addresses = [hangs_up.getsockname(), address_of(kafkapy_broker)]
        link = link_to(network, lambda: addresses.pop(0))
        link.ask(METADATA, METADATA.Request(), answers, timeout_s=LONG)
        hangs_up.accept()[0].close()
        assert answers.wait()[0][1] is not None
    link.ask(METADATA, METADATA.Request(), answers, timeout_s=LONG)
    assert answers.wait(2)[1][1] is None


@pytest.mark.parametrize(
    "answer", [b"\x00\x00\x00\x04\x00\x00\x00\x63", b"\x00\x00\x00\x02\x00\x00", b"HTTP/1.1 400 Bad"]
)
def test_a_peer_that_is_no_broker_fails_the_request(network: SocketServer, answer: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as strange:
        answers = Answers()
        link_to(network, strange.getsockname()).ask(METADATA, METADATA.Request(), answers, timeout_s=LONG)
        peer = strange.accept()[0]
        peer.recv(1000)
        peer.sendall(answer)
        peer.close()
        assert "was lost" in str(answers.wait()[0][1])


def test_a_closed_link_fails_what_it_is_asked(network: SocketServer, kafkapy_broker: Broker) -> None:
    link, answers = link_to(network, address_of(kafkapy_broker)), Answers()
    link.ask(METADATA, METADATA.Request(), answers, timeout_s=LONG)
    answers.wait()
    link.close()
    link.ask(METADATA, METADATA.Request(), answers, timeout_s=LONG)
    assert "is closed" in str(answers.wait(2)[1][1])
