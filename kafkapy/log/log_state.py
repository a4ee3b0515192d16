"""What a partition's log is made of, and the few steps that change it: for PartitionLog and its helpers.

Everything that changes the list of segments happens under `lock`, by the methods whose names end in `_locked`;
readers take the lists and `end` as they are, for each is replaced whole.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, TypeVar

from kafkapy.errors import Errors, KafkaError
from kafkapy.log import names, partition_metadata
from kafkapy.log.append_rules import rules_of
from kafkapy.log.config import LogConfig
from kafkapy.log.environment import Environment
from kafkapy.log.flushing import Flusher
from kafkapy.log.index_repair import repair_indexes
from kafkapy.log.loaded_log import LoadedLog
from kafkapy.log.producer_rebuild import take_snapshot
from kafkapy.log.results import ActiveProducer
from kafkapy.log.retention import KafkaRetention, RetentionPolicy
from kafkapy.log.segment import Segment
from kafkapy.log.segment_list import SegmentList
from kafkapy.log.starts import Starts
from kafkapy.log.upkeep import Upkeep

_T = TypeVar("_T")

_log = logging.getLogger(__name__)


class Watcher(Protocol):
    """Who wants to know that a log has changed: see LogState.tell."""

    def changed(self) -> object: ...


class LogState:
    """`end` is (end offset, active segment, position in it): what readers may see."""

    def __init__(
        self, env: Environment, directory: str, topic: str, partition: int, config: LogConfig, loaded: LoadedLog
    ) -> None:
        self.env = env
        self.clock = env.clock
        self.directory = directory
        self.topic = topic
        self.partition = partition
        self.name = names.dir_name(topic, partition)
        self.topic_id: bytes | None = None
        self.config = config
        self.lock = threading.Lock()
        self.segments = loaded.segments
        self.leader_epochs = loaded.epochs
        self.producers = loaded.producers
        self.snapshots = loaded.snapshots
        self.log_start_offset = loaded.log_start_offset
        self.recovery_point = loaded.recovery_point
        self.high_watermark = loaded.log_start_offset
        active = loaded.segments.active
        self.end: tuple[int, Segment, int] = (loaded.end_offset, active, active.size)
        self.starts = Starts()
        self.flusher = Flusher(self, settled=loaded.settled)
        self.upkeep = Upkeep(env.upkeep)
        self.retention: RetentionPolicy = env.retention or KafkaRetention()
        self.closed = False
        self.appended_ms = 0  # about when the last append was that did not wait
        self.write_seconds = 0.0  # that the last append has waited for the system to take its bytes
        self.verifies_transactions = False  # whether one may begin only after its coordinator was asked (KIP-890)
        self.watchers: dict[Watcher, None] = {}
        self._limit: tuple[int, tuple[Segment, int]] | None = None
        self.rules = rules_of(config, self.env.max_decompressed)
        repair_later = self._repair_later
        for segment in loaded.segments:
            segment.on_damage = repair_later
            if segment.offset_index.damage or segment.time_index.damage:
                segment.damaged()

    def __repr__(self) -> str:
        return f"PartitionLog({self.name}, offsets {self.log_start_offset} to {self.log_end_offset}, {self.directory})"

    @property
    def dir(self) -> Path:
        return Path(self.directory)

    @property
    def log_end_offset(self) -> int:
        return self.end[0]

    @property
    def last_stable_offset(self) -> int:
        """Below it every transaction is decided (and the decision replicated); never above the high watermark."""
        # In this order, without the lock: a transaction is known to be open before the high watermark passes its first
        # record. The other way round it could begin, and be passed, between the two looks.
        high_watermark = self.high_watermark
        unstable = self.producers.first_unstable_offset
        if unstable is None:
            return high_watermark
        return min(max(unstable, self.log_start_offset), high_watermark)

    @property
    def size(self) -> int:
        """Bytes of all segments."""
        return self.segments.size

    def set_high_watermark(self, offset: int) -> None:
        """Moves it, up or down, within the log."""
        offset = max(min(offset, self.end[0]), self.log_start_offset)
        if offset != self.high_watermark:
            self.high_watermark = offset
            # A network thread waits for the lock only where a transaction is to become stable: that was appended just
            # now, and is known here, since its append was over before.
            if self.producers.awaits_high_watermark:
                with self.lock:
                    self.producers.high_watermark_moved(offset)

    def assign_topic_id(self, topic_id: bytes) -> None:
        """Writes partition.metadata if there is none; raises KafkaError if the log has another id."""
        if self.topic_id is None:
            try:
                partition_metadata.write_topic_id(self.env.files, self.directory, topic_id)
            except OSError as error:
                raise self.disk_error("writing partition.metadata", error) from error
            self.topic_id = topic_id
        elif self.topic_id != topic_id:
            raise KafkaError(
                Errors.INCONSISTENT_TOPIC_ID,
                f"{self.directory} belongs to topic id {self.topic_id.hex()}, not {topic_id.hex()}",
            )

    def assign_leader_epoch(self, epoch: int) -> None:
        """This broker leads in a new epoch, which begins at the end of the log. Raises LogDirFailure, KafkaError.

        Epochs are noted of logs in message format 2 only, whose batches carry them.
        """
        if self.config.record_magic >= 2:
            self.changed("noting a leader epoch of", lambda: self.leader_epochs.assign(epoch, self.end[0]))

    def update_config(self, config: LogConfig) -> None:
        """New settings, from the next append on. May wait for the disk where the message format changes."""
        before, self.config = self.config.record_magic, config
        self.rules = rules_of(config, self.env.max_decompressed)
        if config.record_magic < before:
            _log.warning("%s: the message format goes back from %d to %d", self.name, before, config.record_magic)
        if config.record_magic < 2 <= before:
            try:
                self.changed("removing the leader epochs of", self.leader_epochs.discard)
            except KafkaError as error:
                _log.error("%s", error.message)

    def begin_verification(self, producer_id: int, sequence: int, epoch: int) -> int:
        """A guard, if the coordinator is to be asked before the producer may append here; else NO_GUARD.

        Takes no lock that waits for a disk.
        """
        state = self.producers
        return state.verifications.begin(producer_id, sequence, epoch, self.clock.time_ms(), state.is_open)

    def active_producers(self) -> list[ActiveProducer]:
        with self.lock:
            return [
                ActiveProducer(
                    one.producer_id,
                    one.epoch,
                    one.last_sequence,
                    one.last_timestamp,
                    one.coordinator_epoch,
                    one.txn_first_offset,
                )
                for one in self.producers.producers.values()
            ]

    def expire_producers(self) -> None:
        with self.lock:
            self.producers.expire(self.clock.time_ms())

    def limit_place(self, offset: int) -> tuple[Segment, int] | None:
        """Where the last looked up high watermark or last stable offset lies, if it is this one."""
        limit = self._limit
        return limit[1] if limit is not None and limit[0] == offset else None

    def remember_limit(self, offset: int, place: tuple[Segment, int]) -> None:
        self._limit = (offset, place)

    # --- changes

    def tell(self) -> None:
        """Tells the watchers, after a change that a reader sees: of the start, the high watermark, what is stable.

        Called without a lock, by any thread: for what is appended by who moves the high watermark, for all else by
        `changed`. Others may begin and end to watch meanwhile; to copy the keys is one step.
        """
        for watcher in list(self.watchers):
            watcher.changed()

    def changed(self, doing: str, change: Callable[[], _T]) -> _T:
        """Makes a change under the lock; what the disk raises becomes LogDirFailure or KafkaError."""
        self.env.check()
        try:
            with self.lock:
                self.check_open()
                try:
                    return change()
                except OSError as error:
                    raise self.disk_error(f"{doing} {self.name}", error) from error
        finally:  # a change that failed may be half made
            if self.watchers:
                self.tell()

    def move_start_locked(self, offset: int) -> None:
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            if self.high_watermark < offset:  # else it is left alone: it may be moved up just now, without the lock
                self.high_watermark = offset
            self.recovery_point = max(self.recovery_point, offset)
            self.leader_epochs.truncate_from_start(offset)
            self.producers.log_start_moved(offset)

    def move_recovery_point_back(self, offset: int) -> None:
        """What lies from `offset` on counts as not flushed."""
        with self.lock:
            self.recovery_point = min(self.recovery_point, offset)

    def replace_segments_locked(self, segments: SegmentList) -> None:
        """Other segments with the same records: readers see the new list, and nothing that was remembered of the old.

        The end of the log is as it was, and what is said of it: a flush that is under way holds for the active segment,
        and the high watermark moves without this lock.
        """
        self.starts.clear()  # first: who has the new list must not be led into a segment that is not in it
        self._limit = None
        self.segments = segments

    def set_segments_locked(self, segments: SegmentList, end_offset: int, end_position: int) -> None:
        """After a truncation: as above, and the log ends here."""
        self.replace_segments_locked(segments)
        self.flusher.truncated()
        self.end = (end_offset, segments.active, end_position)
        self.recovery_point = min(self.recovery_point, end_offset)
        self.high_watermark = min(self.high_watermark, end_offset)

    def appended(self, first_offset: int, position: int, end_offset: int) -> None:
        """Called by Append: the active segment has the records up to `end_offset`, readers may see them."""
        segment = self.segments.active
        self.starts.note(first_offset, segment, position)
        self.end = (end_offset, segment, segment.size)

    def roll_locked(self) -> None:
        """Raises OSError, and then the old segment is still the active one."""
        old, end_offset = self.segments.active, self.end[0]
        if old.size == 0 and old.base_offset == end_offset:
            return
        try:
            new = Segment.create(self.env.files, self.directory, end_offset, self.config, self.clock)
            self.producers.end_offset = end_offset
            snapshot = take_snapshot(self.producers, self.snapshots, sync=False)
            old.seal()
        except OSError:
            Segment(self.env.files, self.directory, end_offset, self.config, self.clock).delete()
            raise
        self.flusher.sync_later(old, snapshot)
        self.segments = self.segments.with_added(new)
        self.end = (end_offset, new, 0)
        self.env.later(f"flush {self.name}", lambda: self._rolled_at(end_offset))

    def _rolled_at(self, offset: int) -> None:
        """In the background: an append waits neither for the sync nor for the log line."""
        _log.info("%s: new segment at offset %d", self.name, offset)
        self.flusher.flush_to(offset, active=False)

    def _repair_later(self, segment: Segment) -> None:
        self.env.later(f"make the indexes of {segment} anew", lambda: repair_indexes(self, segment))

    def check_open(self) -> None:
        if self.closed:
            raise KafkaError(Errors.UNKNOWN_TOPIC_OR_PARTITION, f"{self.name} is closed: deleted, or the broker stops")

    def disk_error(self, doing: str, error: OSError) -> KafkaError:
        """See Environment.disk_error."""
        return self.env.disk_error(doing, error)
