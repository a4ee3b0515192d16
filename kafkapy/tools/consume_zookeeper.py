"""`kafkapy consume --zookeeper`: what a member of a group in ZooKeeper gets, printed and then committed.

As Kafka's console consumer of 0.8 to 0.10 did: without --group it is a group of its own, console-consumer-NUMBER, which
is removed at the end. Unlike it, a record counts as done only once its line has left this process, and there is an end
where the partitions end, unless it is to follow.
"""

from __future__ import annotations

import secrets
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from kafkapy.client.cluster import TopicPartition
from kafkapy.client.errors import ClientError
from kafkapy.client.fetched import ConsumerRecord
from kafkapy.client.original.errors import ConsumerTimeout
from kafkapy.client.original.filters import TopicFilter
from kafkapy.errors import KafkaError, is_retriable
from kafkapy.runtime.config_def import ConfigError
from kafkapy.tools.consumed_topics import matching
from kafkapy.tools.errors import CallError, ToolError
from kafkapy.tools.group_homes_zookeeper import nodes_of
from kafkapy.tools.interrupts import until_interrupted
from kafkapy.tools.main import sentence_of

if TYPE_CHECKING:
    from kafkapy.client.original.assignment import Partition
    from kafkapy.client.original.connector import ConsumerConnector

# What a consumer.properties of Kafka 0.7 may have of that which the command sets itself.
_OLD_NAMES = {
    "zookeeper.connect": "zk.connect",
    "group.id": "groupid",
    "auto.offset.reset": "autooffset.reset",
    "auto.commit.enable": "autocommit.enable",
}
_COMMIT_EVERY_S = 1.0
_GLANCE_MS = 200  # how long a stream waits for a record before there is a look at everything else
_PATIENCE_S = 10.0  # for a line that is being printed, before its partition is given up


def consumer_properties(zookeeper: str, group: str | None, file: Path | None) -> dict[str, str]:
    """The settings of a consumer, as the file has them, with --zookeeper and --group over them; without old names of
    those that are set here. Raises ToolError, PropertiesError."""
    found: dict[str, str] = {}
    if file is not None:
        from kafkapy.server.config_properties import load_properties

        try:
            found = load_properties(file)
        except OSError as error:
            raise ToolError(f"{file} cannot be read: {error.strerror}") from error
    for name, old_name in _OLD_NAMES.items():
        if old_name in found:
            found.setdefault(name, found.pop(old_name))
    found |= {"zookeeper.connect": zookeeper, "auto.commit.enable": "false", "consumer.timeout.ms": str(_GLANCE_MS)}
    return found if group is None else {**found, "group.id": group}


def consume_zookeeper(
    properties: Mapping[str, str],
    file: Path | None,
    wanted: str | TopicFilter,
    *,
    most: int | None,
    follow: bool,
    show: Callable[[ConsumerRecord], bytes],
) -> bool:
    """Prints, and commits if there is a group, until `most` records were printed, or, unless it is to follow, until it
    has reached the ends that its partitions had when it got them. Returns False if it was interrupted before.

    Args:
        properties: of `consumer_properties`; without group.id it is a group of its own.
        file: where they are from, with TLS and login for ZooKeeper.
    """
    zookeeper, group = properties["zookeeper.connect"], properties.get("group.id")
    with nodes_of(zookeeper, file) as nodes:
        topics = nodes.topics()
        if isinstance(wanted, TopicFilter):
            if not follow:
                matching(wanted, topics)
        elif wanted not in topics:
            raise ToolError(f"there is no topic {wanted!r} in ZooKeeper at {zookeeper}")
    from kafkapy.client.original.connector import ConsumerConnector

    name = group or f"console-consumer-{secrets.randbelow(100_000)}"
    try:
        with _removed(zookeeper, file, None if group else name), until_interrupted() as interrupted:
            with ConsumerConnector({**properties, "group.id": name}) as connector:
                printer = _Printer(connector, commits=group is not None, ends=not follow)
                try:
                    printer.begin(wanted)
                    count = 0
                    while not interrupted.is_set() and count != most and not printer.is_at_the_ends():
                        record = printer.next()
                        if record is not None:
                            sys.stdout.buffer.write(show(record))
                            count += 1
                    printer.commit(last=True)
                finally:
                    printer.finished = True
            return not interrupted.is_set()
    except ConfigError as error:
        option = "--group" if error.key == "group.id" else "--consumer-config"
        raise CallError(f"{option}: {error}") from error


class _Printer:
    """A member with one stream. The main thread prints and commits; the connector's own thread asks for it before
    partitions are given up (`before_release`)."""

    def __init__(self, connector: ConsumerConnector, *, commits: bool, ends: bool) -> None:
        self._connector = connector
        self._commits = commits
        self._has_ends = ends
        self._ends: dict[Partition, int] = {}
        self._look = True  # whether the ends may be reached
        self._commit_at = time.monotonic() + _COMMIT_EVERY_S
        self.finished = False  # then nobody is there to wait for
        self._asked = threading.Event()
        self._done = threading.Event()

    def begin(self, wanted: str | TopicFilter) -> None:
        """Joins the group."""
        if isinstance(wanted, TopicFilter):
            (self._stream,) = self._connector.create_message_streams_by_filter(wanted, rebalance_listener=self)
        else:
            made = self._connector.create_message_streams({wanted: 1}, rebalance_listener=self)
            (self._stream,) = made[wanted]

    def next(self) -> ConsumerRecord | None:
        """None when none has come for a moment. What was returned before has been printed. Raises KafkaError."""
        if self._asked.is_set():
            self.commit()
            self._asked.clear()
            self._done.set()
        elif time.monotonic() >= self._commit_at:
            self.commit()
        try:
            record = next(self._stream)
        except ConsumerTimeout:
            sys.stdout.buffer.flush()
            self._look = True
            return None
        self._look = self._look or record.offset + 1 >= self._ends.get((record.topic, str(record.partition)), 0)
        return record

    def is_at_the_ends(self) -> bool:
        """Whether everything was handed out that was there when this member got its partitions."""
        if not self._has_ends or not self._look:
            return False
        self._look = False
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
        """Waits until the line that is being printed is out, and committed."""
        if not self.finished:
            self._done.clear()
            self._asked.set()
            self._done.wait(_PATIENCE_S)

    def commit(self, *, last: bool = False) -> None:
        """What was handed out has been printed."""
        from kazoo.exceptions import KazooException
        from kazoo.handlers.threading import KazooTimeoutError

        sys.stdout.buffer.flush()
        self._commit_at = time.monotonic() + _COMMIT_EVERY_S
        if not self._commits:
            return
        try:
            self._connector.commit_offsets()
        except (KafkaError, ClientError, KazooException, KazooTimeoutError) as error:
            if last:
                print(
                    f"kafkapy: the last records printed may be printed again by others: {sentence_of(error)}",
                    file=sys.stderr,
                )


@contextmanager
def _removed(zookeeper: str, file: Path | None, group: str | None) -> Iterator[None]:
    """At the end nothing of the group is left in ZooKeeper, if it can be reached."""
    try:
        yield
    finally:
        if group is not None:
            try:
                with nodes_of(zookeeper, file) as nodes:
                    nodes.delete(group)
            except Exception as error:  # of what was done before there is more to say
                print(f"kafkapy: /consumers/{group} may be left in ZooKeeper: {sentence_of(error)}", file=sys.stderr)
