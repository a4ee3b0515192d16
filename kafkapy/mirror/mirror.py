"""A mirror: the checks before it starts, the threads that copy, and how it stops."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from kafkapy.client.errors import ClientError
from kafkapy.client.original.filters import TopicFilter
from kafkapy.mirror.at_least_once import AtLeastOnce
from kafkapy.mirror.counts import Counts
from kafkapy.mirror.delivery import target_cluster
from kafkapy.mirror.exactly_once import ExactlyOnce
from kafkapy.mirror.options import MirrorOptions
from kafkapy.mirror.source_settings import GroupSource, SourceSettings
from kafkapy.mirror.sources import member_of
from kafkapy.mirror.target_settings import TargetSettings
from kafkapy.runtime.threads import NoThread, Thread

log = logging.getLogger(__name__)


class CannotMirror(ClientError):
    """A mirror with these sources, target and options is not possible. The message says why and what to do."""


class NotFlushed(ClientError):
    """The mirror was stopped, and the target did not acknowledge all records in time."""


class Copying(Protocol):
    """A mirror stream, with at-least-once or exactly-once delivery. Its thread calls the methods in this order."""

    def open(self) -> None: ...

    def run(self, stopped: Callable[[], bool]) -> None: ...

    def close(self) -> None: ...


class _Stream:
    """A thread that copies records as one member of a source's group, with its own counts."""

    def __init__(self, mirror: Mirror, source: SourceSettings, number: int, streams: int) -> None:
        self.source = source.of_stream(number, streams)
        self.counts = Counts()
        self.has_begun = threading.Event()
        self._mirror = mirror
        self.thread = Thread(self._run, f"mirror-{source.file}-{number}")

    def _run(self) -> None:
        try:
            copying = self._mirror.copying(self.source, self.counts)
            try:
                copying.open()
                self.has_begun.set()
                copying.run(self._mirror.is_stopped)
            finally:
                copying.close()
        except BaseException as error:
            self._mirror.failed(error)
        finally:
            self.has_begun.set()


class Mirror:
    """Copies topics from the sources to the target, from `start` to `stop`.

    An error that retries do not solve ends the copying early; the error is then in `failure`.
    """

    def __init__(
        self, sources: Sequence[SourceSettings], target: TargetSettings, topics: TopicFilter, options: MirrorOptions
    ) -> None:
        if not sources:
            raise ValueError("a mirror needs at least one source")
        self.sources = sources
        self.target = target
        self.options = options
        self._topics = topics
        self._stopping = threading.Event()
        self._failure: BaseException | None = None
        self._streams: list[_Stream] = []
        self._target_id: str | None = None

    def __enter__(self) -> Mirror:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.stop()
        else:
            self._stopping.set()

    def start(self) -> None:
        """Start all streams. Return when each stream is about to join its source's group.

        Raises:
            CannotMirror: A source is the target, or options contradict each other.
            ConnectionFailed, ZooKeeperError: A cluster cannot be reached.
        """
        if self.options.exactly_once:
            self._check_exactly_once()
        with target_cluster(self.target) as cluster:
            cluster.refresh([])
            self._target_id = cluster.cluster_id
        for source in self.sources:
            for number in range(self.options.streams):
                stream = _Stream(self, source, number, self.options.streams)
                try:
                    stream.thread.start()
                except NoThread as error:
                    self.failed(error)
                else:
                    self._streams.append(stream)
                    stream.has_begun.wait()
                if self._failure is not None:
                    self._stopping.set()
                    self._join(5.0)
                    raise self._failure

    @property
    def counts(self) -> list[tuple[SourceSettings, Counts]]:
        """The source settings and the counts of each stream."""
        return [(stream.source, stream.counts) for stream in self._streams]

    @property
    def failure(self) -> BaseException | None:
        """The error that has ended the mirror, or None if there was no error."""
        return self._failure

    def stop(self, timeout_s: float = 30.0) -> None:
        """Stop all streams: flush and commit the records that were read, and leave the groups.

        Raises:
            NotFlushed: The target did not acknowledge all records within `timeout_s`.
            Exception: The error that had already ended the mirror.
        """
        self._stopping.set()
        if not self._join(timeout_s):
            raise NotFlushed(
                f"the target did not acknowledge all records within {timeout_s:g} s; their offsets are not "
                "committed in the source, and the next mirror copies them again"
            )
        if self._failure is not None:
            raise self._failure

    # Methods for the streams' threads

    def is_stopped(self) -> bool:
        return self._stopping.is_set()

    def failed(self, error: BaseException) -> None:
        """Stop all streams because one stream's thread raised an error. The first error becomes `failure`."""
        self._failure = self._failure or error
        self._stopping.set()

    def copying(self, source: SourceSettings, counts: Counts) -> Copying:
        """Return a new stream object, at-least-once or exactly-once, that copies from one source to the target.

        Raises CannotMirror if the source is the target cluster: as topics keep their names, copies would be copied
        again. Also raises CannotMirror if exactly-once is not possible because the source has no cluster id.
        """
        member = member_of(source, self._topics, seeks=self.options.exactly_once)
        try:
            cluster_id = member.cluster_id()
            if cluster_id is not None and cluster_id == self._target_id:
                raise CannotMirror(
                    f"{source.file} and {self.target.file} name the same cluster, {cluster_id}: topics keep their "
                    "names, so copies would be copied without end; name another cluster in one of them"
                )
            if not self.options.exactly_once:
                return AtLeastOnce(member, self.target, self.options, counts)
            if cluster_id is None:
                raise CannotMirror(
                    f"{source.file}: the cluster has no id (Kafka before 0.10.1), and exactly-once keeps offsets under "
                    "that id; leave out exactly-once to mirror it at least once"
                )
            return ExactlyOnce(member, f"{source.group_id}.{cluster_id}", self.target, self.options, counts)
        except BaseException:
            member.close()
            raise

    def _join(self, timeout_s: float) -> bool:
        """Wait up to `timeout_s` for all threads. Return False if a thread is still running."""
        deadline = time.monotonic() + timeout_s
        for stream in self._streams:
            stream.thread.join(max(0.0, deadline - time.monotonic()))
        return not any(stream.thread.is_alive() for stream in self._streams)

    def _check_exactly_once(self) -> None:
        """Raise CannotMirror if options, target or source settings contradict exactly-once delivery."""
        if not self.options.abort_on_send_failure:
            raise CannotMirror(
                "exactly-once contradicts abort-on-send-failure=false, which loses records; leave one of them out"
            )
        if self.target.acks != -1 or not self.target.idempotent:
            raise CannotMirror(f"{self.target.file}: exactly-once needs acks=all and enable.idempotence=true")
        for source in self.sources:
            if isinstance(source, GroupSource) and source.isolation != "read_committed":
                raise CannotMirror(
                    f"{source.file}: isolation.level is {source.isolation}; exactly-once needs read_committed"
                )
