"""A member of a group in ZooKeeper, for `kafkapy consume --zookeeper`.

As with Kafka's console consumer of 0.8 to 0.10, without --group the group is console-consumer-NUMBER, which is removed
at the end. Unlike that consumer, this member commits a record only after printing it, and it stops at the ends of its
partitions unless --follow is given.
"""

from __future__ import annotations

import secrets
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from kafkapy.client.errors import ClientError
from kafkapy.client.fetched import ConsumerRecord
from kafkapy.client.original.errors import ConsumerTimeout
from kafkapy.client.original.filters import TopicFilter
from kafkapy.client.properties import ClientProperties
from kafkapy.errors import KafkaError, is_retriable
from kafkapy.runtime.config_def import ConfigError
from kafkapy.tools.common.errors import CallError, ToolError
from kafkapy.tools.consume.topic_choice import matching
from kafkapy.tools.groups.zookeeper import open_nodes
from kafkapy.tools.main import sentence_of

if TYPE_CHECKING:
    from kafkapy.client.cluster import TopicPartition
    from kafkapy.client.original.assignment import Partition
    from kafkapy.client.original.consuming.connector import ConsumerConnector

_COMMIT_EVERY_S = 1.0
_POLL_MS = 200  # how long the stream waits for a record before poll returns none
_RELEASE_TIMEOUT_S = 10.0  # how long a rebalance waits until the line being printed is out and committed


def consumer_properties(zookeeper: str, group: str | None, file: Path | None) -> dict[str, str]:
    """Return the consumer's settings by the names that they have since Kafka 0.8: the settings in the file, overridden
    by --zookeeper and --group. Raises ToolError if the file cannot be read, PropertiesError if it is invalid."""
    found: dict[str, str] = {}
    if file is not None:
        from kafkapy.client.original.consuming.settings import NAMES
        from kafkapy.server.config.properties import load_properties

        try:
            given = load_properties(file)
        except OSError as error:
            raise ToolError(f"{file} cannot be read: {error.strerror}") from error
        read = ClientProperties(given, names=NAMES, where="--consumer-config: ", error=CallError)
        found = {name: read.text(name) for name in read}
    found |= {"zookeeper.connect": zookeeper, "auto.commit.enable": "false", "consumer.timeout.ms": str(_POLL_MS)}
    return found if group is None else {**found, "group.id": group}


def zookeeper_member(
    properties: Mapping[str, str], file: Path | None, wanted: str | TopicFilter, *, follow: bool
) -> AbstractContextManager[ZooKeeperMember]:
    """Return a context manager that joins the group on entry, yields the ZooKeeperMember, and leaves the group at the
    end.

    Raises ToolError at once, before entry, if the topic does not exist, or without `follow` if the filter allows no
    topic.

    Args:
        properties: the result of `consumer_properties`; without group.id a new group is used and removed at the end.
        file: the properties file, with TLS and login settings for ZooKeeper.
    """
    zookeeper = properties["zookeeper.connect"]
    with open_nodes(zookeeper, file) as nodes:
        topics = nodes.topics()
    if isinstance(wanted, TopicFilter):
        if not follow:
            matching(wanted, topics)
    elif wanted not in topics:
        raise ToolError(f"there is no topic {wanted!r} in ZooKeeper at {zookeeper}")
    return _joined(properties, file, wanted)


@contextmanager
def _joined(properties: Mapping[str, str], file: Path | None, wanted: str | TopicFilter) -> Iterator[ZooKeeperMember]:
    from kafkapy.client.original.consuming.connector import ConsumerConnector

    group = properties.get("group.id")
    name = group or f"console-consumer-{secrets.randbelow(100_000)}"
    try:
        with (
            _removed(properties["zookeeper.connect"], file, None if group else name),
            ConsumerConnector({**properties, "group.id": name}) as connector,
        ):
            member = ZooKeeperMember(connector, commits=group is not None)
            try:
                member.join(wanted)
                yield member
            finally:
                member.finished = True
    except ConfigError as error:
        option = "--group" if error.key == "group.id" else "--consumer-config"
        raise CallError(f"{option}: {error}") from error


class ZooKeeperMember:
    """A Member of a group in ZooKeeper, with one stream. The main thread prints and commits. Before a rebalance takes
    partitions away, the connector's thread asks the main thread to commit (`before_release`)."""

    def __init__(self, connector: ConsumerConnector, *, commits: bool) -> None:
        self._connector = connector
        self._commits = commits
        self._ends: dict[Partition, int] = {}
        self._may_be_at_the_ends = True
        self._commit_at = time.monotonic() + _COMMIT_EVERY_S
        self.finished = False  # the main thread has stopped polling, so nothing would answer `before_release`
        self._commit_wanted = threading.Event()
        self._commit_done = threading.Event()

    def join(self, wanted: str | TopicFilter) -> None:
        if isinstance(wanted, TopicFilter):
            (self._stream,) = self._connector.create_message_streams_by_filter(wanted, rebalance_listener=self)
        else:
            streams = self._connector.create_message_streams({wanted: 1}, rebalance_listener=self)
            (self._stream,) = streams[wanted]

    def poll(self) -> Sequence[ConsumerRecord]:
        """Return one record, or none if none came for a moment. Commit first if it is time, because by now all earlier
        records have been printed."""
        if self._commit_wanted.is_set():
            self._commit()
            self._commit_wanted.clear()
            self._commit_done.set()
        elif time.monotonic() >= self._commit_at:
            self._commit()
        try:
            record = next(self._stream)
        except ConsumerTimeout:
            sys.stdout.buffer.flush()
            self._may_be_at_the_ends = True
            return ()
        if record.offset + 1 >= self._ends.get((record.topic, str(record.partition)), 0):
            self._may_be_at_the_ends = True
        return (record,)

    def printed(self, records: Sequence[ConsumerRecord], count: int) -> None:
        """Do nothing: the next call of `poll` or `commit` commits the record, because the stream has already returned
        it."""

    def is_at_the_ends(self) -> bool:
        if not self._may_be_at_the_ends:
            return False
        self._may_be_at_the_ends = False
        positions = self._connector.positions()
        try:
            if new := positions.keys() - self._ends:
                ends = self._connector.end_offsets()
                self._ends.update({where: ends[where] for where in new if where in ends})
        except (KafkaError, ClientError) as error:
            if isinstance(error, KafkaError) and not is_retriable(error.code):
                raise
            return False
        known = positions.keys() <= self._ends.keys()
        return known and all(at is not None and at >= self._ends[where] for where, at in positions.items())

    def before_release(self, partitions: list[TopicPartition]) -> None:
        """Wait until the main thread has printed the current line and committed its record, but not longer than the
        time-out. The connector's thread calls this before a rebalance."""
        if not self.finished:
            self._commit_done.clear()
            self._commit_wanted.set()
            self._commit_done.wait(_RELEASE_TIMEOUT_S)

    def commit(self) -> None:
        if error := self._commit():
            print(
                f"kafkapy: the last printed records may be printed again by other members: {sentence_of(error)}",
                file=sys.stderr,
            )

    def _commit(self) -> Exception | None:
        """Flush standard output, then commit all records that the stream has returned. Return the error if the commit
        failed, else None."""
        from kazoo.exceptions import KazooException
        from kazoo.handlers.threading import KazooTimeoutError

        sys.stdout.buffer.flush()
        self._commit_at = time.monotonic() + _COMMIT_EVERY_S
        if self._commits:
            try:
                self._connector.commit_offsets()
            except (KafkaError, ClientError, KazooException, KazooTimeoutError) as error:
                return error
        return None


@contextmanager
def _removed(zookeeper: str, file: Path | None, group: str | None) -> Iterator[None]:
    """Context manager that deletes the group's nodes in ZooKeeper at the end. A failure to do so is printed on standard
    error. Does nothing if `group` is None."""
    try:
        yield
    finally:
        if group is not None:
            try:
                with open_nodes(zookeeper, file) as nodes:
                    nodes.delete(group)
            except Exception as error:  # not raised: it would hide why the command ended
                print(f"kafkapy: /consumers/{group} may be left in ZooKeeper: {sentence_of(error)}", file=sys.stderr)
