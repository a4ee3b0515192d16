"""Creates kazoo clients (connections to ZooKeeper) from settings, with TLS and login, and turns failures into errors
that say what to do.

This module imports kazoo, so import it only if ZooKeeper is used.
"""

from __future__ import annotations

import importlib.util
import logging
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import KeeperState
from kazoo.retry import KazooRetry

from kafkapy.extras import how_to_install
from kafkapy.metadata.zookeeper.properties import PASSWORD, USER, Values, certificate_file
from kafkapy.runtime.threads import starting

log = logging.getLogger("kafkapy.metadata.zookeeper")

# How often to check whether the first connection was refused for good.
_CHECK_INTERVAL_S = 0.1
_GRANTED = re.compile(r"negotiated session timeout: (\d+)")


class ZooKeeperError(Exception):
    """Raised if ZooKeeper cannot be used. The message tells the address, the reason and what to do."""


class NoChroot(ZooKeeperError):
    """Raised if the chroot at the end of zookeeper.connect does not exist and `make_chroot` is False."""


class ZooKeeperSettings(NamedTuple):
    """The settings for connecting to ZooKeeper. `connect` has the form HOST:PORT,HOST:PORT with an optional chroot at
    the end.

    Certificate files are in PEM format; `login` is (user, password) for SASL DIGEST-MD5. With `set_acl`, nodes are
    created such that only this login may change them (ZkData.defaultAcls). If `make_chroot` is False, a missing chroot
    raises NoChroot instead of being created.
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

    def with_security(self, values: Values) -> ZooKeeperSettings:
        """Return a copy of these settings with the TLS and login settings from `values`, which `check_security` has
        accepted."""
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
        """The chroot path at the end of `connect`, or an empty string if there is none."""
        _, slash, path = self.connect.partition("/")
        return f"/{path}".rstrip("/") if slash else ""

    @property
    def servers(self) -> str:
        """The part of `connect` before the chroot, without blanks: kazoo refuses one after a port."""
        return "".join(self.connect.partition("/")[0].split())


def connected(settings: ZooKeeperSettings, hosts: str, on_state: Callable[[str], None]) -> Any:
    """Return a KazooClient with an established session. Raises ZooKeeperError if no connection can be made or the login
    is refused.

    `hosts` is the connection string including the chroot. `on_state` is called on kazoo's threads each time that the
    state of the connection changes.
    """
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
            raise ZooKeeperError(f"a login for ZooKeeper needs pure-sasl: {how_to_install('zookeeper')}")
        user, password = settings.login
        options["sasl_options"] = {"mechanism": "DIGEST-MD5", "username": user, "password": password}
    logger = _LastMessage()
    try:
        client = KazooClient(
            hosts=hosts,
            timeout=settings.session_timeout_ms / 1000,
            connection_retry=KazooRetry(max_tries=-1, delay=0.1, backoff=2, max_delay=1),
            logger=logger,
            **options,
        )
    except ValueError as error:
        raise ZooKeeperError(
            f"zookeeper.connect is {settings.connect!r}, but must be HOST:PORT,HOST:PORT with an optional chroot "
            f"path at the end ({error})"
        ) from None
    client.add_listener(on_state)
    with starting("zookeeper"):
        live = client.start_async()
    deadline = time.monotonic() + settings.connection_timeout_ms / 1000
    while not live.wait(_CHECK_INTERVAL_S):
        refused = client.client_state == KeeperState.AUTH_FAILED
        if refused or time.monotonic() > deadline:
            close(client)
            raise ZooKeeperError(refused_login(servers) if refused else _no_answer(settings, logger.last))
    if settings.login is not None:  # the connection is established before the server checks the login
        try:
            client.exists_async("/").get(timeout=settings.connection_timeout_ms / 1000)
        except (KazooException, KazooTimeoutError):
            close(client)
            raise ZooKeeperError(refused_login(servers)) from None
    return client


def refused_login(servers: str) -> str:
    """Return the text that says what to do after a refused login."""
    return f"ZooKeeper at {servers} refuses the login: check kafkapy.zookeeper.sasl.username and its password"


def _no_answer(settings: ZooKeeperSettings, last: str) -> str:
    return (
        f"ZooKeeper at {settings.servers} does not answer within {settings.connection_timeout_ms / 1000:g} s: is "
        "zookeeper.connect right, and is ZooKeeper running? (zookeeper.connection.timeout.ms sets how long to wait"
        + (f"; the last attempt ended with: {last})" if last else ")")
    )


def close(client: Any) -> bool:
    """End the kazoo client's session. Return False if ZooKeeper could not be reached or did not answer in time."""
    try:
        client.stop()
        client.close()
    # kazoo waits for a connection that is being made; if that fails, the session simply expires later
    except Exception as error:
        log.info("the ZooKeeper session was not closed: %s", error)
        return False
    return True


def revive(client: Any) -> bool:
    """Start a kazoo client again if it has given up connecting, and return True if so. kazoo gives up after a refused
    login, even if the login was refused only because the server was stopping. kazoo then also forgets the session,
    which ZooKeeper keeps until it expires. Does nothing after `close`."""
    loop = client._connection._connection_routine
    has_given_up = loop is not None and not loop.is_alive()
    if has_given_up:
        client.start_async()
    return has_given_up


def _readable(path: str | None) -> str | None:
    if path is not None and not Path(path).is_file():
        raise ZooKeeperError(f"the file {path} of the zookeeper.ssl settings does not exist")
    return path


def granted_timeout_ms(client: Any, asked_ms: int) -> int:
    """Return the session time-out in milliseconds that ZooKeeper has granted within its minSessionTimeout and
    maxSessionTimeout.

    Return `asked_ms`, the requested time-out, if kazoo has not logged the granted one.
    """
    return client.logger.granted_ms or asked_ms


class _LastMessage(logging.Logger):
    """A logger for kazoo that prints nothing and keeps only the last problem, for error messages: kazoo logs every
    attempt to connect, which would be too much. It also keeps the session time-out that ZooKeeper has granted, which
    kazoo tells only in a log message."""

    def __init__(self) -> None:
        super().__init__("kazoo", logging.WARNING)
        self.last = ""
        self.granted_ms: int | None = None

    def log(self, level: int, msg: object, *args: object, **options: Any) -> None:
        if args and "negotiated session timeout" in str(msg):
            found = _GRANTED.search(str(msg) % args)
            self.granted_ms = int(found[1]) if found else self.granted_ms
        super().log(level, msg, *args, **options)

    def handle(self, record: logging.LogRecord) -> None:
        self.last = record.getMessage().partition(": ")[2] or self.last


def named(error: Exception) -> str:
    """Return the name and the message of a kazoo exception as one text."""
    return f"{type(error).__name__.removesuffix('Error')} {error}".strip()
