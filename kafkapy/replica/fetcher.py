"""One connection on which this broker fetches partitions from their leader, one Fetch request at a time.

No thread runs the loop: a response is handled on the connection's network thread, which sends the next request. What
may wait for a disk runs on a pool, and the next request follows when that is done. While a follower is far behind, the
next request is sent before that (`fetch_ahead`); its response is received meanwhile, but not handled before. Source:
AbstractFetcherThread.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from kafkapy.errors import Errors, KafkaError, message_of
from kafkapy.log.append.follower import UnexpectedOffset
from kafkapy.log.failures import LogDirFailure
from kafkapy.log.manager import LogManager
from kafkapy.log.results import Busy
from kafkapy.metadata.ids import ZERO_ID
from kafkapy.network.replies import NO_REPLY, Pending
from kafkapy.protocol.apis import FETCH
from kafkapy.replica.fetch_ahead import position_after
from kafkapy.replica.fetch_session import IDS_FROM, FetchSession, FetchSettings
from kafkapy.replica.fetch_state import FetchState, Position, release
from kafkapy.replica.fetched import Fetched, FetchedPartition, decode_fetched
from kafkapy.replica.follower_log import take, truncate_diverging
from kafkapy.replica.links import Link, LinkError
from kafkapy.replica.out_of_range import OffsetReset
from kafkapy.replica.truncation import EpochEnd
from kafkapy.runtime.disk_pool import DiskPool, PoolStopped
from kafkapy.runtime.threads import NoThread
from kafkapy.runtime.timer import Timer

log = logging.getLogger("kafkapy.replica.fetcher")

LOWEST_VERSION = 12  # the first with last_fetched_epoch: each response says if the logs diverge (KIP-595)
# Records of a response up to this size are appended on the network thread: handing them to a pool takes longer.
APPENDED_AT_ONCE = 64 << 10
_THROTTLED_S = 0.1  # between two checks if the throttle lets a partition continue
# Back-offs at the beginning of a role, while the leader may not have its role yet. With replica.fetch.backoff.ms, as in
# Apache Kafka, producers with acks=all would wait that long for a follower whose role came before that of the leader.
_FIRST_BACKOFFS_S = (0.02, 0.05, 0.1, 0.2)
_NOT_LEADER_YET = (
    Errors.UNKNOWN_LEADER_EPOCH,
    Errors.NOT_LEADER_OR_FOLLOWER,
    Errors.UNKNOWN_TOPIC_ID,
    Errors.UNKNOWN_TOPIC_OR_PARTITION,
)


class Following(NamedTuple):
    """The settings and callbacks that all fetchers of a broker share.

    broker_epoch    returns the epoch of this broker's registration
    settings        called for each request
    is_throttled    returns True if a partition that is not in sync may not be fetched now (KIP-73)
    on_append       called with a partition and the number of bytes that were appended to it
    on_failed       called with a partition that is not fetched any more until its next role
    """

    broker_id: int
    broker_epoch: Callable[[], int]
    logs: LogManager
    pool: DiskPool
    timer: Timer
    settings: Callable[[], FetchSettings]
    is_throttled: Callable[[FetchState], bool]
    on_append: Callable[[FetchState, int], object]
    on_failed: Callable[[FetchState], object]


# A partition of a response, with the position that the request named.
_Item = tuple[FetchState, Position, FetchedPartition]


class Fetcher:
    """The fetch loop of one connection. Any thread may add and remove partitions."""

    def __init__(self, link: Link, following: Following) -> None:
        self.link = link
        self._following = following
        self._offset_reset = OffsetReset(self, following)
        # Guards the attributes up to `_on_end`.
        self._lock = threading.Lock()
        self._states: dict[FetchState, None] = {}
        self._active: dict[FetchState, None] = {}  # those that are not held
        self._changed: dict[FetchState, None] = {}  # those that the next request has to look at
        self._without_id = 0  # how many have no topic id
        self._session = FetchSession()
        self._asking = False  # a request is under way, or its response is being handled
        self._appending = False  # a response is being appended while the request after it is under way
        self._backing_off = False  # after a failure of the link
        self._closed = False
        self._on_end: Callable[[list[FetchState]], object] | None = None
        # Only the thread that handles the response uses these.
        self._failure = ""  # the failure of the link that was logged last
        self._is_denied = False  # the leader refuses all fetches of this broker
        self._delayed: dict[float | None, list[FetchState]] = {}  # by the seconds, see `delay`
        self._unflushed: list[FetchState] = []

    def __repr__(self) -> str:
        return f"Fetcher({self.link}, {len(self._states)} partitions)"

    # --- for any thread

    def add(self, state: FetchState) -> bool:
        """Fetch a partition from now on, or when it is not held any more. Return False if this fetcher is closed."""
        with self._lock:
            if self._closed:
                return False
            state.fetcher = self
            self._states[state] = self._changed[state] = None
            self._without_id += state.topic_id == ZERO_ID
            if not state.held:
                self._active[state] = None
        self._next()
        return True

    def remove(self, state: FetchState) -> None:
        """Stop fetching a partition. A response that is under way is not used for it."""
        with self._lock:
            if state in self._states:
                del self._states[state]
                self._without_id -= state.topic_id == ZERO_ID
                self._active.pop(state, None)
                self._changed[state] = None
                state.fetcher = None

    def fail(self, state: FetchState) -> None:
        """Stop fetching a partition until its next role."""
        self.remove(state)
        self._following.on_failed(state)

    def hold(self, state: FetchState) -> None:
        """Leave a partition out of the next requests, until `fetch_state.release`."""
        with self._lock:
            state.held = True
            self._active.pop(state, None)
            self._changed[state] = None

    def released(self, states: Iterable[FetchState]) -> None:
        """Fetch partitions again that are not held any more: called by `fetch_state.release`."""
        with self._lock:
            for state in states:
                if state in self._states and not state.held:
                    self._active[state] = self._changed[state] = None
        self._next()

    def delay(self, states: list[FetchState], seconds: float | None = None) -> None:
        """Hold partitions for this time, by default for replica.fetch.backoff.ms."""
        for state in states:
            self.hold(state)
        if states:
            wait_s = self._following.settings().backoff_s if seconds is None else seconds
            self._following.timer.schedule(wait_s, lambda: release(states))

    def close(self, then: Callable[[list[FetchState]], object] | None = None) -> None:
        """End the loop, and close the connection.

        `then` is called with the partitions when no thread uses this fetcher's last response any more: from then on
        another fetcher may fetch them.
        """
        with self._lock:
            self._closed = True
            self._on_end = then
        self.link.close()
        self._ended()

    def _ended(self) -> None:
        with self._lock:
            if self._asking or self._appending:
                # The link calls `_answered`, or the thread that handles the response calls `_not_asking`
                # or `_caught_up`.
                return
            then, self._on_end = self._on_end, None
            states = list(self._states)
        if then is not None:
            for state in states:
                self.remove(state)
            then(states)

    # --- requests

    def _next(self) -> None:
        """Send the next request, unless one is under way or there is nothing to fetch. Close an unused fetcher."""
        throttled = self._throttled()
        if throttled:
            self.delay(throttled, _THROTTLED_S)
        with self._lock:
            if self._asking or self._appending or self._backing_off or self._closed:
                return
            if self._active:
                self._asking = True
            elif not self._states:
                self._closed = True
            asking, closed = self._asking, self._closed
        if asking:
            self._ask()
        elif closed:
            self.link.close()

    def _ask(self) -> None:
        highest = IDS_FROM - 1 if self._without_id else FETCH.max_version
        self.link.ask(
            FETCH,
            self._request,
            self._answered,
            timeout_s=self._following.settings().timeout_s,
            versions=(LOWEST_VERSION, highest),
            decode=decode_fetched,
        )

    def _throttled(self) -> list[FetchState]:
        is_throttled = self._following.is_throttled
        with self._lock:
            looked_at = list(self._active if self._session.is_new else self._changed)
        return [state for state in looked_at if not state.held and state.lag != 0 and is_throttled(state)]

    def _request(self, version: int) -> Any:
        """Return the next request, as the link's network thread sends it."""
        following = self._following
        with self._lock:
            session = self._session
            session.begin(version)
            looked_at, self._changed = self._changed, {}
            wanted = list(self._active) if session.is_new else []
            gone = []
            for state in looked_at:
                if state not in self._active:
                    gone.append(state)
                elif not session.is_new:
                    wanted.append(state)
            if self._without_id and version >= IDS_FROM:  # such a partition was added since the version was chosen
                self._changed.update((state, None) for state in wanted if state.topic_id == ZERO_ID)
                wanted = [state for state in wanted if state not in self._changed]
            return session.request(
                version, wanted, gone, following.settings(), following.broker_id, following.broker_epoch()
            )

    # --- responses, on the network thread of the link

    def _answered(self, fetched: Fetched | None, error: LinkError | None) -> Pending | None:
        if fetched is None:
            self._link_failed(str(error))
            return None
        try:
            return self._use(fetched)
        except Exception as failure:
            log.exception("a fetch response of %s cannot be used", self.link.name)
            self._link_failed(str(failure))
            return None

    def _use(self, fetched: Fetched) -> Pending | None:
        """Use a response, and send the next request when all of it has been handled.

        Returns a Pending if the receive buffer is needed until then.
        """
        if fetched.error_code:
            self._session_refused(fetched.error_code)
            return None
        later = self._take_at_once(self._items(fetched))
        if not later and not self._unflushed:
            self._end_turn()
            return None
        pending = self.link.keep_buffer() if later else None
        goes_ahead = pending is not None and self._go_ahead(later)
        try:
            self._following.pool.submit(self._take_later, later, pending, goes_ahead)
        except (PoolStopped, NoThread) as failure:
            if goes_ahead:
                self._forget_ahead(later)
            for state, _, _ in later:
                self.problem(state, f"its records cannot be appended: {failure}")
                self._delay_later(state)
            self._unflushed = []
            self._end_turn()
            return None
        if goes_ahead:
            self._ask()
        return pending

    def _go_ahead(self, items: list[_Item]) -> bool:
        """Note where the partitions will be when these items are appended, and return True, if the leader may get these
        positions now. This thread must then call `_ask`, and the thread that appends the items `_caught_up`.
        """
        is_throttled = self._following.is_throttled
        if self._delayed or self._unflushed or any(is_throttled(state) for state, _, _ in items):
            return False
        positions = [position_after(*item) for item in items]
        if None in positions:
            return False
        with self._lock:
            if self._closed:
                return False
            self._appending = True
            for (state, _, _), position in zip(items, positions, strict=True):
                state.ahead = position
                self._changed[state] = None
        return True

    def _forget_ahead(self, items: list[_Item]) -> None:
        """Have the next request name the real positions of those partitions that did not reach the positions that the
        last request named.
        """
        with self._lock:
            self._appending = False
            for state, _, _ in items:
                ahead, state.ahead = state.ahead, None
                if state.position != ahead:
                    self._changed[state] = None

    def _caught_up(self, items: list[_Item], pending: Pending) -> None:
        """Let the response to the request that was sent ahead be handled: these items are appended, or have failed."""
        self._delay_now()
        self._forget_ahead(items)
        pending.complete(NO_REPLY)
        self._ended() if self._closed else self._next()  # if the link has failed meanwhile, nothing is under way

    def _link_failed(self, reason: str) -> None:
        """Fetch again, in a new session, after replica.fetch.backoff.ms."""
        with self._lock:
            self._session.reset()
            count, closed = len(self._states), self._closed
        if not closed and reason != self._failure:
            self._failure = reason
            log.warning("fetches wait: %s; partitions: %d", reason, count)
        self._not_asking(back_off=True)

    def _session_refused(self, code: int) -> None:
        """Begin a new session after an error of the whole response: after a back-off if the refused request was already
        opening a new session, else at once.
        """
        with self._lock:
            incremental = not self._session.is_new
            self._session.refused(code)
        log.log(
            logging.INFO if incremental else logging.WARNING,
            "%s refused a fetch of %d partitions: %s", self.link.name, len(self._states), message_of(code),
        )  # fmt: skip
        self._not_asking(back_off=not incremental)

    def _items(self, fetched: Fetched) -> list[_Item]:
        """Return the partitions of a response that are still fetched."""
        if self._failure:
            log.info("fetches from %s continue; partitions: %d", self.link.name, len(self._states))
            self._failure = ""
        items, unknown = [], []
        with self._lock:
            session = self._session
            for one in fetched.partitions:
                known = session.sent.get((one.topic, one.partition))
                if known is None:
                    unknown.append(one)
                elif known[0] in self._active:
                    items.append((*known, one))
            session.answered(fetched.session_id)
            if unknown:
                session.reset()
        if unknown:
            topic = unknown[0].topic
            log.error(
                "%s sent %d partitions that it was not asked for, such as %s partition %d: ignored",
                self.link.name, len(unknown), topic if isinstance(topic, str) else topic.hex(), unknown[0].partition,
            )  # fmt: skip
        return items

    def _take_at_once(self, items: list[_Item]) -> list[_Item]:
        """Handle the partitions that need not wait for the disk. Return the others."""
        size = 0
        for _, _, fetched in items:
            if fetched.records:
                size += len(fetched.records)
        small = size <= APPENDED_AT_ONCE
        return [item for item in items if not ((small or not item[2].records) and self._handle_partition(item, False))]

    def _take_later(self, items: list[_Item], pending: Pending | None, goes_ahead: bool) -> None:
        """Handle partitions that may wait for the disk, on a thread of the pool. With `goes_ahead`, the next
        request is under way already."""
        try:
            for item in items:
                self._handle_partition(item, True)
            for state in self._unflushed:
                self._guarded(state, state.partition.log.flush)
        finally:
            self._unflushed = []
            if goes_ahead:
                assert pending is not None
                self._caught_up(items, pending)
            else:
                if pending is not None:
                    pending.complete(NO_REPLY)
                self._end_turn()

    def _end_turn(self) -> None:
        """Send the next request, when the response has been handled."""
        if self._delayed:
            self._delay_now()
        self._not_asking()

    def _delay_later(self, state: FetchState, seconds: float | None = None) -> None:
        """Have a partition delayed when the response has been handled."""
        self._delayed.setdefault(seconds, []).append(state)

    def _delay_now(self) -> None:
        delayed, self._delayed = self._delayed, {}
        for seconds, states in delayed.items():
            self.delay(states, seconds)

    def _not_asking(self, *, back_off: bool = False) -> None:
        """Send the next request, as none is under way now; with `back_off`, after replica.fetch.backoff.ms."""
        with self._lock:
            self._asking = False
            closed = self._closed
            if back_off and not closed:
                self._backing_off = True
        if closed:
            self._ended()
        elif back_off:
            self._following.timer.schedule(self._following.settings().backoff_s, self._backed_off)
        else:
            self._next()

    def _backed_off(self) -> None:
        with self._lock:
            self._backing_off = False
        self._next()

    # --- one partition of a response

    def _handle_partition(self, item: _Item, blocking: bool) -> bool:
        """Use the response for one partition. Return False, without any effect, if that may wait for the disk."""
        state, asked, fetched = item
        partition = state.partition
        if partition.gone is not None or state not in self._active:
            return True
        if fetched.error_code:
            self._refused(state, fetched.error_code)
            return True
        if partition.log.end[0] == asked.offset and self._guarded(state, self._take, state, fetched, blocking) is False:
            return False
        with self._lock:  # the next request names the partition if its position is another one now
            self._changed[state] = None
        return True

    def _take(self, state: FetchState, fetched: FetchedPartition, blocking: bool) -> bool:
        logs = self._following.logs
        if fetched.diverging is not None:
            if blocking:
                truncate_diverging(state.partition, EpochEnd(*fetched.diverging), logs)
            return blocking
        done = take(state.partition, fetched, logs, blocking=blocking)
        if isinstance(done, Busy):
            return False
        state.lag = max(0, fetched.high_watermark - done.end_offset)
        state.problem = ""
        self._is_denied = False
        if done.size:
            self._following.on_append(state, done.size)
            if state.partition.log.is_flush_due:
                self._unflushed.append(state)
        return True

    def _guarded(self, state: FetchState, act: Callable[..., Any], *args: Any) -> Any:
        """Return the result of `act(*args)`. After an error handle the error of this partition, and return None."""
        partition = state.partition
        try:
            return act(*args)
        except LogDirFailure:  # logged by the log directory
            self.fail(state)
        except UnexpectedOffset as error:
            self.problem(state, str(error), logging.ERROR)
            self.fail(state)
        except KafkaError as error:
            if partition.log.closed:  # deleted, or the broker stops
                self.fail(state)
            elif partition.gone is None:
                if error.code != Errors.NOT_LEADER_OR_FOLLOWER:  # else a later role has begun, and takes its place
                    self.problem(state, error.message, logging.ERROR)
                self._delay_later(state)
        except Exception:
            log.exception("%s is not fetched any more until its next leader epoch", partition)
            self.fail(state)
        return None

    def _refused(self, state: FetchState, code: int) -> None:
        """Handle the error of one partition in the leader's response."""
        if code == Errors.OFFSET_OUT_OF_RANGE:
            self._offset_reset.begin(state)
        elif code == Errors.FENCED_LEADER_EPOCH:
            self.fenced(state)
        elif code in _NOT_LEADER_YET and state.early_refusals < len(_FIRST_BACKOFFS_S):
            self._delay_later(state, _FIRST_BACKOFFS_S[state.early_refusals])
            state.early_refusals += 1
        elif code == Errors.TOPIC_AUTHORIZATION_FAILED:  # a follower needs no right on the topic, so all are refused
            if not self._is_denied:
                self._is_denied = True
                log.error(
                    "%s refuses all fetches of this broker, so nothing is replicated from there: this broker's "
                    "principal is neither among super.users nor allowed ClusterAction on the cluster",
                    self.link.name,
                )
            self._delay_later(state)
        else:
            self.problem(state, f"the leader refuses the fetch: {message_of(code)}")
            self._delay_later(state)

    def fenced(self, state: FetchState) -> None:
        """Stop fetching a partition whose leader is in a later epoch than this broker knows, until its next role."""
        self.problem(state, f"the leader is in a later epoch than {state.partition.leader_epoch}", logging.INFO)
        self.fail(state)

    def problem(self, state: FetchState, what: str, level: int = logging.WARNING) -> None:
        """Log why a partition cannot be fetched, unless this was logged last for it."""
        if state.problem != what:
            state.problem = what
            partition = state.partition
            log.log(
                level, "%s-%d at offset %d from %s: %s",
                partition.topic, partition.index, partition.log.end[0], self.link.name, what,
            )  # fmt: skip
