"""The metadata of a cluster (brokers, topics, leaders), and one connection to each broker that a client uses."""

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from kafkapy.client.addresses import parse_addresses
from kafkapy.client.connection import Connection
from kafkapy.client.errors import BrokerTimedOut, ConnectionFailed
from kafkapy.client.security import Security, security_of
from kafkapy.errors import Errors, KafkaError, is_retriable, message_of
from kafkapy.protocol.apis import METADATA, Api
from kafkapy.runtime.addresses import host_port

log = logging.getLogger(__name__)

BACKOFF_S = 0.1
CAN_FORBID = 4  # Metadata from this version on has allow_auto_topic_creation

TopicPartition = tuple[str, int]

T = TypeVar("T")
C = TypeVar("C", bound="ClusterClient")


@dataclass(frozen=True)
class Broker:
    """A broker's id and address."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


@dataclass(frozen=True)
class Partition:
    """A partition's metadata from a Metadata response.

    `leader` is the leader's broker id, -1 if the partition has no leader. `error_code` is 0 if the partition can be
    used.
    """

    index: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    error_code: int = 0


@dataclass(frozen=True)
class Topic:
    """A topic's metadata from a Metadata response.

    `topic_id` is the 16-byte topic id, all zeros if the broker's Metadata version has no topic ids. `partitions` maps
    each partition's index to its metadata. `error_code` is 0 if the topic exists and can be used.
    """

    name: str
    topic_id: bytes
    internal: bool
    partitions: dict[int, Partition]
    error_code: int = 0


class Cluster:
    """Caches a cluster's metadata, and keeps one shared connection to each broker that is used.

    `brokers` and `topics` hold the metadata from the last responses, by broker id and by topic name.

    Args:
        bootstrap_servers: The brokers to connect to first, as `"host:port,host:port"` or a list of addresses.
        timeout_s: The time limit for one request, and for all retries of one call.
        old_brokers: Accept brokers that do not know ApiVersions, as for Connection.
        security: The properties for TLS and login by the names of Kafka's clients or librdkafka, such as
            {"security.protocol": "SSL", "ssl.ca.location": "ca.pem"}, or a Security. None: PLAINTEXT.
    """

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str],
        *,
        client_id: str = "kafkapy",
        timeout_s: float = 30.0,
        old_brokers: bool = False,
        security: Security | Mapping[str, Any] | None = None,
    ) -> None:
        self.client_id = client_id
        self.timeout_s = timeout_s
        self.old_brokers = old_brokers
        self.security = security_of(security)
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
        """Close all connections. A later call connects again."""
        idle = [connection for connections in self._idle.values() for connection in connections]
        for connection in [*self._by_node.values(), *idle, *([self._bootstrap] if self._bootstrap else [])]:
            connection.close()
        self._by_node.clear()
        self._idle.clear()
        self._bootstrap = None

    def another(self) -> "Cluster":
        """Return a new Cluster for the same brokers, with its own connections and metadata.

        The new Cluster is for use in another thread.
        """
        servers = [host_port(host, port) for host, port in self._addresses]
        return Cluster(
            servers,
            client_id=self.client_id,
            timeout_s=self.timeout_s,
            old_brokers=self.old_brokers,
            security=self.security,
        )

    def ask_first(self, bootstrap_servers: str | Sequence[str]) -> None:
        """Replace the bootstrap servers, and forget the metadata of all topics.

        Open connections stay open. The new bootstrap servers are used when `any_connection` finds no open connection.
        """
        self._addresses = parse_addresses(bootstrap_servers)
        self.topics.clear()

    def refresh(self, topics: Iterable[str] | None = None, *, create: bool = False) -> None:
        """Update the cached metadata of the brokers and of `topics` (None: all topics; empty: none) from any broker.

        If a broker closes the connection instead of responding, ask the next one.

        Args:
            create: Let the broker auto-create missing topics. With `old_brokers`, a broker that supports only Metadata
                versions below 4 auto-creates missing topics in any case.
        Raises:
            KafkaError: A topic's name cannot be encoded in UTF-8.
            ConnectionFailed: No broker can be reached, or none responds.
        """
        names = None if topics is None else list(map(_checked_name, topics))
        wanted = None if names is None else [METADATA.Request.Topics(name=name) for name in names]
        failure: ConnectionFailed | None = None
        for connection in self._connections():
            must_create = self.old_brokers and connection.version_of(METADATA) < CAN_FORBID
            request = METADATA.Request(topics=wanted, allow_auto_topic_creation=create or must_create)
            try:
                response = connection.call(METADATA, request)
                break
            except BrokerTimedOut:
                raise  # the time limit is over
            except ConnectionFailed as error:
                failure = failure or error
        else:
            assert failure is not None
            raise failure
        self.cluster_id = response.cluster_id
        self.controller_id = response.controller_id
        self.brokers = {b.node_id: Broker(b.node_id, b.host, b.port, b.rack) for b in response.brokers}
        if names is None:
            self.topics = {}
        for topic in response.topics:
            self.topics[topic.name] = _topic(topic)

    def topic(self, name: str, *, create: bool = False, refresh: bool = False, wait_for_leaders: bool = False) -> Topic:
        """Return a topic's metadata, whether or not the topic's partitions have leaders at the moment.

        Args:
            create: Let the broker auto-create the topic if it is missing, and wait until the topic exists.
            refresh: Ask a broker even if the topic's metadata is cached.
            wait_for_leaders: Wait until the topic exists and all its partitions have leaders, because the topic is just
                being created. Cached metadata without an error is returned at once, unless `refresh` is set.
        Raises:
            KafkaError: The broker's error for the topic, such as UNKNOWN_TOPIC_OR_PARTITION.
        """
        known = None if refresh else self.topics.get(name)
        if known is not None and not known.error_code:
            return known

        def look() -> Topic:
            self.refresh([name], create=create)
            topic = self.topics.get(name)
            if topic is None:
                raise KafkaError(Errors.UNKNOWN_SERVER_ERROR, f"topic {name!r}: the broker's answer leaves it out")
            code = topic.error_code
            if wait_for_leaders and not code:
                code = next((p.error_code for p in topic.partitions.values() if p.leader < 0), 0)
            if code:
                raise KafkaError(code, f"topic {name!r}: {message_of(code)}")
            return topic

        return self.retry(look, never=() if create or wait_for_leaders else (Errors.UNKNOWN_TOPIC_OR_PARTITION,))

    def leader_of(self, topic: str, partition: int) -> int:
        """Return the broker id of a partition's leader. If the partition has none, wait for one up to the time limit.

        Raises:
            KafkaError: UNKNOWN_TOPIC_OR_PARTITION, or LEADER_NOT_AVAILABLE if the partition has no leader at the time
                limit.
        """

        def look() -> int:
            leader = self.leader_now(topic, partition)
            if leader < 0:
                self.topics.pop(topic, None)  # so that the next attempt asks a broker
                code = Errors.LEADER_NOT_AVAILABLE
                raise KafkaError(code, f"{topic}-{partition}: {message_of(code)}")
            return leader

        return self.retry(look, never=(Errors.UNKNOWN_TOPIC_OR_PARTITION,))

    def leader_now(self, topic: str, partition: int) -> int:
        """Return the broker id of a partition's leader, or -1 if the partition has no leader.

        The topic's cached metadata is used; to learn of a new leader, remove the topic from `topics` first. Raise
        KafkaError UNKNOWN_TOPIC_OR_PARTITION if the topic or the partition does not exist.
        """
        partitions = self.topic(topic).partitions
        if partition not in partitions:
            raise KafkaError(
                Errors.UNKNOWN_TOPIC_OR_PARTITION,
                f"topic {topic!r} has no partition {partition}: it has {len(partitions)}, counted from 0",
            )
        return partitions[partition].leader

    def connection(self, node_id: int) -> Connection:
        """Return the shared connection to the broker with this id.

        Connect on the first use, and again after that connection was closed, also by the broker. Raise ConnectionFailed
        if the broker is not in the cached metadata or cannot be reached.
        """
        connection = self._by_node.get(node_id)
        if connection is not None and not connection.usable:
            connection.close()
            connection = None
        if connection is None:
            connection = self._by_node[node_id] = self._connect(node_id)
        return connection

    def borrow(self, node_id: int) -> Connection:
        """Return a connection to the broker with this id that only the caller uses, such as for pipelined requests.

        The caller returns the connection with `give_back`.
        """
        idle = self._idle.get(node_id, [])
        while idle:
            connection = idle.pop()
            if connection.usable:
                return connection
            connection.close()
        return self._connect(node_id)

    def give_back(self, node_id: int, connection: Connection) -> None:
        """Keep a borrowed connection for the next `borrow`. Close it if a response is still outstanding on it."""
        if connection.in_flight:
            connection.close()
        if not connection.closed:
            self._idle.setdefault(node_id, []).append(connection)

    def _connect(self, node_id: int) -> Connection:
        """Return a new connection to the broker with this id. If that fails, forget the metadata of the topics that the
        broker leads partitions of, so that other leaders are found."""
        broker = self.brokers.get(node_id)
        try:
            if broker is None:
                raise ConnectionFailed(f"Broker {node_id} is not among the brokers of the cluster at the moment.")
            return self.connect_to(broker.host, broker.port)
        except ConnectionFailed:
            for name, topic in list(self.topics.items()):
                if any(partition.leader == node_id for partition in topic.partitions.values()):
                    del self.topics[name]
            raise

    def connect_to(self, host: str, port: int) -> Connection:
        """Return a new connection to a broker at this address, which the caller must close."""
        return Connection(
            host,
            port,
            client_id=self.client_id,
            timeout_s=self.timeout_s,
            old_brokers=self.old_brokers,
            security=self.security,
        )

    def any_connection(self) -> Connection:
        """Return a connection to any broker: one that is open and has no outstanding response, else a new connection.

        A new connection goes to the first reachable address among the bootstrap servers and then the known brokers.
        Raise ConnectionFailed if none of them can be reached.
        """
        return next(self._connections())

    def _connections(self) -> Iterator[Connection]:
        """Yield connections to brokers, as `any_connection` chooses them: first the open ones, then a new one to each
        address that can be reached. Raise ConnectionFailed if there is none."""
        found = False
        for connection in [*self._by_node.values(), self._bootstrap]:
            if connection is None:
                continue
            if not connection.usable:
                connection.close()
            elif not connection.in_flight:
                found = True
                yield connection
        failure: ConnectionFailed | None = None
        known = [(broker.host, broker.port) for broker in self.brokers.values()]
        for host, port in dict.fromkeys([*self._addresses, *known]):
            try:
                self._bootstrap = self.connect_to(host, port)
            except ConnectionFailed as error:
                failure = failure or error
            else:
                found = True
                yield self._bootstrap
        if not found:
            assert failure is not None
            raise failure

    def controller(self) -> Connection:
        """Return the shared connection to the controller, or to any broker if the brokers name no controller.

        If the controller of the cached metadata cannot be reached, ask another broker which one is the controller.
        """
        if self.controller_id in self.brokers:
            try:
                return self.connection(self.controller_id)
            except ConnectionFailed as error:
                log.info("looking for another controller: %s", error)
        self.refresh([])
        return self.connection(self.controller_id) if self.controller_id >= 0 else self.any_connection()

    def ask_controller(self, api: Api, request: Any, results: str, *, at_most: int | None = None) -> list[Any]:
        """Send a request to the controller. Return the field `results` of the response, whose items have error codes.

        While all of them are NOT_CONTROLLER, because another broker becomes the controller, look for the controller and
        send the request again, up to the time limit. Raise the errors of `Connection.call`, and KafkaError
        NOT_CONTROLLER at the time limit.
        """

        def ask() -> list[Any]:
            found: list[Any] = getattr(self.controller().call(api, request, at_most=at_most), results)
            if found and all(one.error_code == Errors.NOT_CONTROLLER for one in found):
                self.refresh([])
                raise KafkaError(Errors.NOT_CONTROLLER)
            return found

        return self.retry(ask)

    def retry(self, work: Callable[[], T], *, never: Sequence[int] = (), timeout_s: float | None = None) -> T:
        """Call `work` and return its result. Call `work` again while it raises a retriable KafkaError.

        A KafkaError with a code in `never` is raised at once. The last error is raised after `timeout_s` (None: the
        cluster's time limit). Connection errors are not retried.
        """
        deadline = time.monotonic() + (self.timeout_s if timeout_s is None else timeout_s)
        while True:
            try:
                return work()
            except KafkaError as error:
                if not is_retriable(error.code) or error.code in never or time.monotonic() >= deadline:
                    raise
            time.sleep(BACKOFF_S)


class ClusterClient:
    """The base class of clients that are created with bootstrap servers or with a Cluster of the caller.

    A Cluster of the caller stays open when the client is closed.
    """

    def __init__(
        self,
        cluster: Cluster | str | Sequence[str],
        *,
        timeout_s: float = 30.0,
        security: Security | Mapping[str, Any] | None = None,
    ) -> None:
        self._owns_cluster = not isinstance(cluster, Cluster)
        if isinstance(cluster, Cluster):
            self.cluster = cluster
        else:
            self.cluster = Cluster(cluster, timeout_s=timeout_s, security=security)

    @property
    def _timeout_ms(self) -> int:
        return int(self.cluster.timeout_s * 1000)

    def __enter__(self: C) -> C:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the client's connections. The connections of a Cluster that the caller passed in stay open."""
        if self._owns_cluster:
            self.cluster.close()


def _checked_name(name: str) -> str:
    """Return the topic name `name`. Raise KafkaError INVALID_TOPIC_EXCEPTION if it cannot be encoded in UTF-8."""
    try:
        name.encode()
    except UnicodeEncodeError:
        raise KafkaError(Errors.INVALID_TOPIC_EXCEPTION, f"topic {name!r}: it is not in UTF-8") from None
    return name


def _topic(topic: Any) -> Topic:
    """Return the Topic that describes `topic`, an element of `topics` in a decoded Metadata response."""
    partitions = {
        p.partition_index: Partition(
            p.partition_index, p.leader_id, p.leader_epoch, tuple(p.replica_nodes), tuple(p.isr_nodes), p.error_code
        )
        for p in sorted(topic.partitions, key=lambda p: p.partition_index)
    }
    return Topic(topic.name, bytes(topic.topic_id), topic.is_internal, partitions, topic.error_code)
