"""A client of ZooKeeper, made from settings: connected in time, trusted, logged in, or refused in a sentence.

Imports kazoo: load it only where there is a ZooKeeper.
"""

from __future__ import annotations

import importlib.util
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import KeeperState
from kazoo.retry import KazooRetry

from kafkapy.metadata.keeper_properties import PASSWORD, USER, Values, certificate_file

log = logging.getLogger("kafkapy.metadata.zookeeper")

# How often the first connection is asked whether it was refused for good.
_GLANCE_S = 0.1


class KeeperError(Exception):
    """ZooKeeper cannot be used; the message says where, why, and what to do."""


class NoChroot(KeeperError):
    """The path at the end of zookeeper.connect is not there, and was not to be made."""


class KeeperSettings(NamedTuple):
    """How to reach ZooKeeper. `connect` is HOST:PORT with commas between and an optional chroot at the end.

    Files are PEM; `login` is (user, password) for SASL's DIGEST-MD5. With `set_acl` nodes are made so that only this
    login changes them (ZkData.defaultAcls). Without `make_chroot` a chroot that is not there raises NoChroot.
    """

    connect: str
    session_timeout_ms: int = 18000
    connection_timeout_ms: int = 18000
    max_in_flight: int = 10
    set_acl: bool = False
    tls: bool = False
    ca_file: str | None = None
    certificate_file: str | None = None
    key_password: str | None = None
    check_hostname: bool = True
    login: tuple[str, str] | None = None
    make_chroot: bool = True

    def with_trust(self, values: Values) -> KeeperSettings:
        """And what `values` say of TLS and the login, which have been checked."""
        algorithm = values["zookeeper.ssl.endpoint.identification.algorithm"]
        return self._replace(
            tls=values["zookeeper.ssl.client.enable"],
            ca_file=values["zookeeper.ssl.truststore.location"],
            certificate_file=certificate_file(values),
            key_password=values["zookeeper.ssl.keystore.password"],
            check_hostname=algorithm.upper() == "HTTPS",
            login=(values[USER], values[PASSWORD]) if values[USER] else None,
        )

    @property
    def chroot(self) -> str:
        """Empty for none."""
        _, slash, path = self.connect.partition("/")
        return f"/{path}".rstrip("/") if slash else ""

    @property
    def servers(self) -> str:
        return self.connect.partition("/")[0]


def connected(settings: KeeperSettings, hosts: str, on_state: Callable[[str], None]) -> Any:
    """A KazooClient whose session has begun. Raises KeeperError."""
    servers = settings.servers
    options: dict[str, Any] = {}
    if settings.tls:
        options = {
            "use_ssl": True,
            "ca": _readable(settings.ca_file),
            "certfile": _readable(settings.certificate_file),
            "keyfile": _readable(settings.certificate_file),
            "keyfile_password": settings.key_password,
            "check_hostname": settings.check_hostname,
        }
    if settings.login is not None:
        if importlib.util.find_spec("puresasl") is None:
            raise KeeperError("a login for ZooKeeper needs pure-sasl: pip install 'kafkapy[zookeeper]'")
        user, password = settings.login
        options["sasl_options"] = {"mechanism": "DIGEST-MD5", "username": user, "password": password}
    heard = _Heard()
    try:
        client = KazooClient(
            hosts=hosts,
            timeout=settings.session_timeout_ms / 1000,
            connection_retry=KazooRetry(max_tries=-1, delay=0.1, backoff=2, max_delay=1),
            logger=heard,
            **options,
        )
    except ValueError as error:
        raise KeeperError(
            f"zookeeper.connect is {settings.connect!r}, which is not HOST:PORT with commas between and an optional "
            f"path at the end ({error})"
        ) from None
    client.add_listener(on_state)
    live = client.start_async()
    deadline = time.monotonic() + settings.connection_timeout_ms / 1000
    while not live.wait(_GLANCE_S):
        refused = client.client_state == KeeperState.AUTH_FAILED
        if refused or time.monotonic() > deadline:
            close(client)
            raise KeeperError(_refused(servers) if refused else _silence(settings, heard.last))
    if settings.login is not None:  # the connection is there before the login is looked at
        try:
            client.exists_async("/").get(timeout=settings.connection_timeout_ms / 1000)
        except (KazooException, KazooTimeoutError):
            close(client)
            raise KeeperError(_refused(servers)) from None
    return client


def _refused(servers: str) -> str:
    return f"ZooKeeper at {servers} refuses the login: check kafkapy.zookeeper.sasl.username and its password"


def _silence(settings: KeeperSettings, last: str) -> str:
    return (
        f"ZooKeeper at {settings.servers} does not answer within {settings.connection_timeout_ms / 1000:g} s: is "
        "zookeeper.connect right, and does it run? (zookeeper.connection.timeout.ms is how long to wait"
        + (f"; the last attempt ended with: {last})" if last else ")")
    )


def close(client: Any) -> None:
    """Ends its session, if ZooKeeper can be told."""
    try:
        client.stop()
        client.close()
    except Exception as error:  # it waits for a connection that is being made; nothing is lost if it waits in vain
        log.info("the session was not closed properly: %s", error)


def _readable(path: str | None) -> str | None:
    if path is not None and not Path(path).is_file():
        raise KeeperError(f"{path}, which the settings zookeeper.ssl name, is not there")
    return path


class _Heard(logging.Logger):
    """kazoo logs each attempt; of that only the last problem is kept, for the tree says once what has become of the
    connection."""

    def __init__(self) -> None:
        super().__init__("kazoo", logging.WARNING)
        self.last = ""

    def handle(self, record: logging.LogRecord) -> None:
        self.last = record.getMessage().partition(": ")[2] or self.last


def named(error: Exception) -> str:
    """What kazoo calls it, and what it says."""
    return f"{type(error).__name__.removesuffix('Error')} {error}".strip()
