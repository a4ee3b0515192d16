"""Connections to other brokers over TLS: host names are verified, and an error says why it failed."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkapy.network.settings import Listener, NetworkSettings
from kafkapy.network.socket_server import SocketServer
from kafkapy.network.tls import TlsDialer
from kafkapy.protocol.apis import METADATA
from kafkapy.replica.links import Link
from kafkapy.runtime.clock import SYSTEM_CLOCK
from kafkapy.runtime.counters import Registry
from kafkapy.runtime.disk_pool import DiskPool
from kafkapy.runtime.read_pools import ReadPools
from kafkapy.security.tls.context import client_context
from kafkapy.server.broker import BrokerServer
from kafkapy.server.config.broker_config import BrokerConfig
from tests.harness.certificates import Pki, trust_settings
from tests.replica.test_links import LONG, Answers, NoHandler

MakeLink = Callable[..., Link]


@pytest.fixture(scope="module")
def pki() -> Pki:
    return Pki()


@pytest.fixture
def broker(tmp_path: Path, pki: Pki) -> Iterator[BrokerServer]:
    issued = pki.authority.issue("CN=broker", names=["localhost"])
    settings = {
        "log.dirs": str(tmp_path / "data"),
        "listeners": "PLAINTEXT://localhost:0,SSL://localhost:0,MUTUAL://localhost:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SSL:SSL,MUTUAL:SSL",
        "listener.name.mutual.ssl.client.auth": "required",
        **issued.settings(tmp_path, trusted=[pki.authority]),
    }
    server = BrokerServer(BrokerConfig(settings))
    server.start()
    yield server
    server.stop()


@pytest.fixture
def make_link(broker: BrokerServer) -> Iterator[MakeLink]:
    """Return a function that makes a link to a listener of the broker with a TLS context and a host name."""
    pool, read_pools = DiskPool(1), ReadPools(1)
    network = SocketServer(
        [Listener("A", "127.0.0.1", 0)], NoHandler(), NetworkSettings(), Registry(), pool, read_pools, SYSTEM_CLOCK
    )
    network.bind()
    network.start()

    def make(context: ssl.SSLContext, listener: str = "SSL", host: str = "localhost") -> Link:
        address = next(one for one in broker.listeners if one.startswith(f"{listener}:"))
        dialer = TlsDialer(lambda: context, pool)
        return Link(
            "broker 7",
            lambda: (host, int(address.rpartition(":")[2])),
            network,
            pool.submit,
            client_id="test",
            connect_timeout_s=LONG,
            prepare=lambda host: lambda conn: dialer.prepare(conn, host),
        )

    yield make
    network.stop()
    pool.stop()
    read_pools.stop()


def ask(link: Link) -> tuple[Any, str]:
    """Return (response to a Metadata request, text of the error or "")."""
    answers = Answers()
    link.ask(METADATA, METADATA.Request(), answers, timeout_s=LONG)
    ((response, error),) = answers.wait()
    return response, str(error or "")


def test_a_request_over_tls(make_link: MakeLink, pki: Pki, tmp_path: Path) -> None:
    trust = trust_settings(tmp_path / "client", [pki.authority])
    own = pki.client.settings(tmp_path / "client", trusted=[pki.authority])
    for listener, settings in (("SSL", trust), ("MUTUAL", own)):
        link = make_link(client_context(settings), listener)
        for _ in range(3):
            response, error = ask(link)
            assert not error
            assert len(response.brokers) == 1
        link.close()


def test_failures_say_why(make_link: MakeLink, pki: Pki, tmp_path: Path) -> None:
    context = client_context(trust_settings(tmp_path / "client", [pki.authority]))
    foreign = client_context(trust_settings(tmp_path / "foreign", [Pki().authority]))
    refused = "the connection to broker 7 was lost: TLS: "
    for link, reason in (
        (make_link(context, host="127.0.0.1"), "its certificate is not accepted: IP address mismatch, certificate is "),
        (make_link(foreign), "its certificate is not accepted: unable to get local issuer certificate"),
        (make_link(context, "MUTUAL"), "it refuses the connection: alert certificate required"),
        (make_link(context, "PLAINTEXT"), "the connection was closed during the handshake"),
    ):
        for _ in range(2):
            response, error = ask(link)
            assert response is None
            assert error.startswith(refused + reason)
        link.close()


def test_host_names_are_not_verified_without_the_algorithm(make_link: MakeLink, pki: Pki, tmp_path: Path) -> None:
    settings = trust_settings(tmp_path / "client", [pki.authority])
    link = make_link(client_context({**settings, "ssl.endpoint.identification.algorithm": ""}), host="127.0.0.1")
    response, error = ask(link)
    assert not error
    assert len(response.brokers) == 1
    link.close()
