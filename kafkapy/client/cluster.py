"""The brokers of a cluster, who leads what, and one connection to each broker that is needed."""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from kafkapy.client.connection import Connection
from kafkapy.client.errors import ClientError, ConnectionFailed
from kafkapy.errors import Errors, KafkaError, is_retriable, message_of
from kafkapy.protocol.apis import METADATA
from kafkapy.runtime.addresses import host_port

BACKOFF_S = 0.1
CAN_FORBID = 4  # Metadata from this version on can say that no topic is to be made

TopicPartition = tuple[str, int]

T = TypeVar("T")


@dataclass(frozen=True)
class Broker:
    node_id: int
    host: str
    port: int
    rack: str | None = None


@dataclass(frozen=True)
class Partition:
    """`leader` is -1 while there is none; `error_code` is why a partition cannot be used (0: it can)."""

    index: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    error_code: int = 0


@dataclass(frozen=True)
class Topic:
    """`topic_id` is the 16 bytes of the id, zeros where the broker has none; partitions by index."""

    name: str
    topic_id: bytes
    internal: bool
    partitions: dict[int, Partition]
    error_code: int = 0


def parse_addresses(servers: str | Iterable[str]) -> list[tuple[str, int]]:
    """`"a:9092,[::1]:9093"`, or a list of such, as (host, port) pairs; raises ValueError naming the wrong one."""
    texts = servers.split(",") if isinstance(servers, str) else list(servers)
    addresses = []
    for text in filter(None, (text.strip() for text in texts)):
        host, colon, port = text.rpartition(":")
        if not colon or not host or not (port.isascii() and port.isdigit()) or not 0 < int(port) < 65536:
            raise ValueError(f"the address {text!r} is not HOST:PORT, as in 127.0.0.1:9092 or [::1]:9092")
        addresses.append((host.strip("[]"), int(port)))
    if not addresses:
        raise ValueError("no address of a broker is given; write HOST:PORT, as in 127.0.0.1:9092")
    return addresses


class Cluster:
    """Metadata and connections. `topics` holds what the last `refresh` of each topic said.

    Args:
        bootstrap_servers: brokers to ask first, `"host:port,host:port"` or a list of such.
        timeout_s: for one request, and for how long a call tries again where that may help.
        old_brokers: as Connection has it.
    """

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str],
        *,
        client_id: str = "kafkapy",
        timeout_s: float = 30.0,
        old_brokers: bool = False,
    ) -> None:
        self.client_id = client_id
        self.timeout_s = timeout_s
        self.old_brokers = old_brokers
        self.cluster_id: str | None = None
        self.controller_id = -1
        self.brokers: dict[int, Broker] = {}
        self.topics: dict[str, Topic] = {}
        self._addresses = parse_addresses(bootstrap_servers)
        self._by_node: dict[int, Connection] = {}
        self._bootstrap: Connection | None = None
        self._idle: dict[int, list[Connection]] = {}

    def __enter__(self) -> "Cluster":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        idle = [connection for connections in self._idle.values() for connection in connections]
        for connection in [*self._by_node.values(), *idle, *([self._bootstrap] if self._bootstrap else [])]:
            connection.close()
        self._by_node.clear()
        self._idle.clear()
        self._bootstrap = None

    def another(self) -> "Cluster":
        """The same cluster with connections and metadata of its own, for another thread."""
        servers = [host_port(host, port) for host, port in self._addresses]
        return Cluster(servers, client_id=self.client_id, timeout_s=self.timeout_s, old_brokers=self.old_brokers)

    def ask_first(self, bootstrap_servers: str | Sequence[str]) -> None:
        """Other brokers to ask first from now on, where nobody is connected; and all topics anew."""
        self._addresses = parse_addresses(bootstrap_servers)
        self.topics.clear()

    def refresh(self, topics: Iterable[str] | None = None, *, create: bool = False) -> None:
        """Asks any broker for the cluster and for `topics` (None: all; empty: none). `create` lets the broker
        make a topic that it does not know, if it is set to; one of `old_brokers` may do so anyway. KafkaError for a
        name that is not in UTF-8."""
        names = None if topics is None else list(map(_sayable, topics))
        wanted = None if names is None else [METADATA.Request.Topics(name=name) for name in names]
        connection = self.any_connection()
        if self.old_brokers and connection.version_of(METADATA) < CAN_FORBID:
            create = True
        request = METADATA.Request(topics=wanted, allow_auto_topic_creation=create)
        response = connection.call(METADATA, request)
        self.cluster_id = response.cluster_id
        self.controller_id = response.controller_id
        self.brokers = {b.node_id: Broker(b.node_id, b.host, b.port, b.rack) for b in response.brokers}
        if names is None:
            self.topics = {}
        for topic in response.topics:
            self.topics[topic.name] = _topic(topic)

    def topic(self, name: str, *, create: bool = False, refresh: bool = False, patient: bool = False) -> Topic:
        """A topic all of whose partitions have leaders; waits for that up to the time limit.

        Args:
            create: lets the broker make the topic.
            refresh: asks even if the topic is known.
            patient: waits also for a topic that is not there, because it is being made. So does `create`.
        Raises:
            KafkaError: what the broker says of the topic, such as UNKNOWN_TOPIC_OR_PARTITION.
        """
        known = None if refresh else self.topics.get(name)
        if known is not None and not known.error_code:
            return known

        def look() -> Topic:
            self.refresh([name], create=create)
            topic = self.topics.get(name)
            if topic is None:
                raise KafkaError(Errors.UNKNOWN_SERVER_ERROR, f"topic {name!r}: the broker's answer leaves it out")
            code = topic.error_code or next((p.error_code for p in topic.partitions.values() if p.leader < 0), 0)
            if code:
                raise KafkaError(code, f"topic {name!r}: {message_of(code)}")
            return topic

        return self.retry(look, never=() if create or patient else (Errors.UNKNOWN_TOPIC_OR_PARTITION,))

    def leader_of(self, topic: str, partition: int) -> int:
        """The broker that leads a partition, as last heard; raises KafkaError for a partition that is not there."""
        partitions = self.topic(topic).partitions
        if partition not in partitions:
            raise KafkaError(
                Errors.UNKNOWN_TOPIC_OR_PARTITION,
                f"topic {topic!r} has no partition {partition}: it has {len(partitions)}, counted from 0",
            )
        return partitions[partition].leader

    def connection(self, node_id: int) -> Connection:
        """The connection to a broker, made when it is first needed or after it broke."""
        connection = self._by_node.get(node_id)
        if connection is None or connection.closed:
            connection = self._by_node[node_id] = self._connect(node_id)
        return connection

    def borrow(self, node_id: int) -> Connection:
        """A connection to a broker that nobody else uses until it is given back: for requests sent ahead."""
        idle = self._idle.get(node_id)
        return idle.pop() if idle else self._connect(node_id)

    def give_back(self, node_id: int, connection: Connection) -> None:
        """It is kept for the next borrower, or closed when an answer is still to come on it."""
        if connection.in_flight:
            connection.close()
        if not connection.closed:
            self._idle.setdefault(node_id, []).append(connection)

    def _connect(self, node_id: int) -> Connection:
        broker = self.brokers.get(node_id)
        if broker is None:
            raise ConnectionFailed(f"Broker {node_id} is not among the brokers of the cluster at the moment.")
        return self._connect_to(broker.host, broker.port)

    def _connect_to(self, host: str, port: int) -> Connection:
        return Connection(host, port, client_id=self.client_id, timeout_s=self.timeout_s, old_brokers=self.old_brokers)

    def any_connection(self) -> Connection:
        """Some broker that answers: one already connected, else the first of the addresses that takes us."""
        for connection in [*self._by_node.values(), self._bootstrap]:
            if connection is not None and not connection.closed and not connection.in_flight:
                return connection
        failure: ClientError | None = None
        known = [(broker.host, broker.port) for broker in self.brokers.values()]
        for host, port in dict.fromkeys([*self._addresses, *known]):
            try:
                self._bootstrap = self._connect_to(host, port)
                return self._bootstrap
            except ConnectionFailed as error:
                failure = failure or error
        assert failure is not None
        raise failure

    def controller(self) -> Connection:
        """The connection for requests that only the controller carries out."""
        if self.controller_id not in self.brokers:
            self.refresh([])
        return self.connection(self.controller_id) if self.controller_id >= 0 else self.any_connection()

    def retry(self, work: Callable[[], T], *, never: Sequence[int] = (), timeout_s: float | None = None) -> T:
        """Does `work` again while it fails in a way that time may heal, up to the time limit; then its last error.

        A broker that cannot be reached at all is not waited for: that error comes at once.
        """
        deadline = time.monotonic() + (self.timeout_s if timeout_s is None else timeout_s)
        while True:
            try:
                return work()
            except KafkaError as error:
                if not is_retriable(error.code) or error.code in never or time.monotonic() >= deadline:
                    raise
            time.sleep(BACKOFF_S)


def _sayable(name: str) -> str:
    """The name, unless it has bytes of a command line that are no UTF-8: it would be sent, and answered, as another."""
    try:
        name.encode()
    except UnicodeEncodeError:
        raise KafkaError(Errors.INVALID_TOPIC_EXCEPTION, f"topic {name!r}: it is not in UTF-8") from None
    return name


def _topic(topic: Any) -> Topic:
    partitions = {
        p.partition_index: Partition(
            p.partition_index, p.leader_id, p.leader_epoch, tuple(p.replica_nodes), tuple(p.isr_nodes), p.error_code
        )
        for p in sorted(topic.partitions, key=lambda p: p.partition_index)
    }
    return Topic(topic.name, bytes(topic.topic_id), topic.is_internal, partitions, topic.error_code)
