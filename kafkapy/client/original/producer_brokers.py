"""The brokers as ZooKeeper has them, for `zk.connect`: watched, so that a producer hears of what comes and goes."""

from __future__ import annotations

import json
import logging
import threading
from typing import Any

from kafkapy.client.errors import ConnectionFailed
from kafkapy.runtime.addresses import host_port

log = logging.getLogger(__name__)

IDS, TOPICS = "/brokers/ids", "/brokers/topics"


class ZooKeeperBrokers:
    """Raises ConnectionFailed where ZooKeeper cannot be reached or has no broker there, or kazoo is not installed."""

    def __init__(self, connect: str, session_timeout_ms: int, connection_timeout_ms: int) -> None:
        try:
            from kafkapy.metadata.keeper_client import KeeperError, KeeperSettings, connected
        except ImportError as error:
            raise ConnectionFailed("zk.connect needs kazoo: pip install 'kafkapy[zookeeper]'.") from error
        settings = KeeperSettings(connect, session_timeout_ms, connection_timeout_ms)
        self._connect = connect
        self._timeout_s = connection_timeout_ms / 1000
        self._news = threading.Event()
        try:
            self._client: Any = connected(settings, connect, lambda _: self._news.set())
        except KeeperError as error:
            raise ConnectionFailed(str(error)) from error

    def has_news(self) -> bool:
        """Whether brokers or topics, or the connection, may have changed since `addresses`."""
        return self._news.is_set()

    def addresses(self) -> list[str]:
        """Of all brokers there are, in the order of their ids; leaves watches behind."""
        from kazoo.exceptions import KazooException, NoNodeError
        from kazoo.handlers.threading import KazooTimeoutError

        self._news.clear()
        found: list[str] = []
        try:
            for one in sorted(filter(str.isdecimal, self._ask("get_children", IDS, self._changed)), key=int):
                data, _ = self._ask("get", f"{IDS}/{one}")
                if (address := _address(f"{IDS}/{one}", data)) is not None:
                    found.append(address)
            self._ask("get_children", TOPICS, self._changed)
        except NoNodeError:
            self._news.set()  # no watch could be left: the next look has to be soon
        except (KazooException, KazooTimeoutError) as error:
            self._news.set()
            raise ConnectionFailed(f"The brokers in ZooKeeper at {self._connect} cannot be read: {error!r}.") from error
        if not found:
            raise ConnectionFailed(
                f"ZooKeeper at {self._connect} has no broker at {IDS}. Is one running, and the chroot the right one?"
            )
        return found

    def close(self) -> None:
        from kafkapy.metadata.keeper_client import close

        close(self._client)

    def _ask(self, what: str, *given: Any) -> Any:
        """Kazoo alone would wait for a lost connection for ever."""
        return getattr(self._client, f"{what}_async")(*given).get(timeout=self._timeout_s)

    def _changed(self, _: Any) -> None:
        self._news.set()


def _address(path: str, data: bytes) -> str | None:
    """HOST:PORT of a broker's node: JSON since 0.8, creator:host:port in 0.7. A node that is neither is named in the
    log, and the other brokers are used."""
    text = data.decode(errors="replace")
    try:
        if not text.startswith("{"):
            _, host, port = text.split(":")
            return host_port(host, int(port))
        node = json.loads(text)
        if node.get("host"):
            return host_port(node["host"], int(node["port"]))
        plain = next(one for one in node["endpoints"] if one.startswith("PLAINTEXT://"))
        host, _, port = plain.partition("://")[2].rpartition(":")
        return host_port(host.strip("[]"), int(port))
    except (ValueError, KeyError, TypeError, AttributeError, StopIteration):
        log.warning("%s in ZooKeeper has no address of a broker that can be used: %.200s", path, text)
        return None
