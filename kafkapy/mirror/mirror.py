"""A mirror as a whole: what is checked before it begins, its streams, how it ends."""

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

log = logging.getLogger(__name__)


class CannotMirror(ClientError):
    """What is asked for cannot be; the text says why and what to do."""


class NotFlushed(ClientError):
    """The mirror was to end, and the target did not acknowledge in time what was read."""


class Copying(Protocol):
    """What a stream's thread does, in this order."""

    def open(self) -> None: ...

    def run(self, stopped: Callable[[], bool]) -> None: ...

    def close(self) -> None: ...


class _Stream:
    """One thread, with counts of its own."""

    def __init__(self, mirror: Mirror, source: SourceSettings, number: int, streams: int) -> None:
        self.source = source.of_stream(number, streams)
        self.counts = Counts()
        self.has_begun = threading.Event()
        self._mirror = mirror
        self.thread = threading.Thread(target=self._run, name=f"mirror-{source.file}-{number}", daemon=True)

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
    """Copies until `stop`, or until something fails that cannot be waited out.

    Raises: see `start`.
    """

    def __init__(
        self, sources: Sequence[SourceSettings], target: TargetSettings, topics: TopicFilter, options: MirrorOptions
    ) -> None:
        if not sources:
            raise ValueError("a mirror needs one source at least")
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
        """Returns when each stream is about to join its group.

        Raises:
            CannotMirror: a source is the target, or options do not go together.
            ConnectionFailed, KeeperError: nobody answers at one of the addresses.
        """
        if self.options.exactly_once:
            self._check_exactly_once()
        with target_cluster(self.target) as cluster:
            cluster.refresh([])
            self._target_id = cluster.cluster_id
        for source in self.sources:
            for number in range(self.options.streams):
                stream = _Stream(self, source, number, self.options.streams)
                self._streams.append(stream)
                stream.thread.start()
                stream.has_begun.wait()
                if self._failure is not None:
                    self._stopping.set()
                    self._join(5.0)
                    raise self._failure

    @property
    def counts(self) -> list[tuple[SourceSettings, Counts]]:
        """Of each stream."""
        return [(stream.source, stream.counts) for stream in self._streams]

    @property
    def failure(self) -> BaseException | None:
        """Why it has ended by itself; None while it goes on."""
        return self._failure

    def stop(self, timeout_s: float = 30.0) -> None:
        """Ends all streams: what was read is flushed and committed, and the groups are left.

        Raises:
            NotFlushed: the target did not acknowledge it in time.
            Exception: why it has ended before, if it has.
        """
        self._stopping.set()
        if not self._join(timeout_s):
            raise NotFlushed(
                f"the target did not acknowledge within {timeout_s:g} s what was read of the source; it is not "
                "committed, and the next mirror reads it again"
            )
        if self._failure is not None:
            raise self._failure

    # For the streams

    def is_stopped(self) -> bool:
        return self._stopping.is_set()

    def failed(self, error: BaseException) -> None:
        self._failure = self._failure or error
        self._stopping.set()

    def copying(self, source: SourceSettings, counts: Counts) -> Copying:
        """What a stream does. Raises CannotMirror for a source that is the target: topics keep their names, so that it
        would never end."""
        member = member_of(source, self._topics, seeks=self.options.exactly_once)
        try:
            cluster_id = member.cluster_id()
            if cluster_id is not None and cluster_id == self._target_id:
                raise CannotMirror(
                    f"{source.file} and {self.target.file} are about the same cluster, {cluster_id}: topics keep their "
                    "names, so that copies would be copied for ever; name another cluster in one of them"
                )
            if not self.options.exactly_once:
                return AtLeastOnce(member, self.target, self.options, counts)
            if cluster_id is None:
                raise CannotMirror(
                    f"{source.file}: the cluster has no id, as those before Kafka 0.10.1 have none, and exactly-once "
                    "keeps offsets under it; mirror it at least once"
                )
            return ExactlyOnce(member, f"{source.group_id}.{cluster_id}", self.target, self.options, counts)
        except BaseException:
            member.close()
            raise

    def _join(self, timeout_s: float) -> bool:
        """Whether all threads have ended."""
        deadline = time.monotonic() + timeout_s
        for stream in self._streams:
            stream.thread.join(max(0.0, deadline - time.monotonic()))
        return not any(stream.thread.is_alive() for stream in self._streams)

    def _check_exactly_once(self) -> None:
        if not self.options.abort_on_send_failure:
            raise CannotMirror(
                "exactly-once does not go with abort-on-send-failure=false: what is lost is not there once"
            )
        if self.target.acks != -1 or not self.target.idempotent:
            raise CannotMirror(f"{self.target.file}: exactly-once needs acks=all and enable.idempotence=true")
        for source in self.sources:
            if isinstance(source, GroupSource) and source.isolation != "read_committed":
                raise CannotMirror(
                    f"{source.file}: isolation.level is {source.isolation}; exactly-once needs read_committed"
                )
