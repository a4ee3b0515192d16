"""Fetch (versions 0 to 17): return records, as regions of segment files, at once or when min_bytes are available.

Versions before 4 get records in the older message formats, converted on a pool. Source: KafkaApis.handleFetchRequest,
ReplicaManager.fetchMessages.

Differences from Kafka:

- An incremental fetch reads only the partitions of its session that may have something new (see FetchSession). For a
  follower, all are read every quarter of replica.lag.time.max.ms, so that the leader knows that it is caught up.
- A follower's response has the high watermark after its own fetch, not the one before.
- A follower's fetch that is refused for lack of ClusterAction opens no session.
"""

from __future__ import annotations

import logging
import time
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from kafkapy._ext.hotpath import FetchRequest, decode_fetch_frame, encode_fetch_response
from kafkapy.errors import Errors, KafkaError
from kafkapy.metadata.ids import ZERO_ID
from kafkapy.network.pieces import Pieces
from kafkapy.network.replies import CLOSE, Reply
from kafkapy.protocol.apis import FETCH
from kafkapy.record.file_region import FileRegion
from kafkapy.replica.fetch import DelayedFetch, FetchPlan, FetchRead, Wanted
from kafkapy.replica.hosted_partition import READ_TO_LOG_END, HostedPartition, consumer_isolation
from kafkapy.replica.read_replica import RACK_AWARE, replica_in_rack
from kafkapy.runtime.disk_pool import PoolStopped
from kafkapy.runtime.threads import NoThread
from kafkapy.server.admission import denied_names, is_denied, refusal, rights_of
from kafkapy.server.api_table import serves
from kafkapy.server.call import Call, Later
from kafkapy.server.checks import TOPIC_DENIED, Check, Right
from kafkapy.server.current_leader import WRONG_LEADER, current_leader
from kafkapy.server.fetching.read_pool import pool_of, pool_of_first
from kafkapy.server.fetching.session import FetchPartition, FetchSession
from kafkapy.server.fetching.sessions import FINAL_EPOCH, FetchContext

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from kafkapy.metadata.cache import Node
    from kafkapy.replica.old_clients import OldClientReads
    from kafkapy.replica.partition import Partition
    from kafkapy.runtime.disk_pool import DiskPool
    from kafkapy.server.rights import Rights
    from kafkapy.server.services import Services

log = logging.getLogger("kafkapy.server.fetch")

FORMAT_1_SINCE = 2
FIRST_BATCH_WHOLE_SINCE = 3
FORMAT_2_SINCE = 4
KNOWS_STORAGE_ERROR = 6
TOPIC_IDS_SINCE = 13
ZSTD_SINCE = 10
FLEXIBLE_SINCE = 12
FROM_FOLLOWERS_SINCE = 11  # KIP-392
NAMES_LEADER_SINCE = 16  # KIP-951
# A network thread reads up to this many partitions. Fetches with more take milliseconds (with a million: ten seconds),
# so they run on a pool. A request of a few bytes can ask for very many partitions: those in its fetch session.
MOST_INLINE = 1000
MOST_ASKED_INLINE = 100  # topics for which a network thread asks the authorizer, in half a millisecond
TURN_S = 0.05  # longest time that a conversion keeps a pool thread before other work of the pool is run
_LOOKED_AT = 16  # most partitions that are looked up to find one on this broker, whose disk decides which pool reads
_DENIED = Errors.TOPIC_AUTHORIZATION_FAILED
# Errors that are found before the log is read. As in Kafka, partitions with these errors have an empty list of aborted
# transactions; partitions with other errors have null.
_NOT_READ = {
    Errors.UNKNOWN_TOPIC_OR_PARTITION,
    Errors.TOPIC_AUTHORIZATION_FAILED,
    Errors.UNKNOWN_TOPIC_ID,
    Errors.INCONSISTENT_TOPIC_ID,
}
NO_RECORDS = b""  # never null: for librdkafka a response with null records is malformed


@serves(
    FETCH,
    decode=decode_fetch_frame,
    checks=[
        Check(
            Right("READ", "TOPIC"),
            TOPIC_DENIED + " for its partitions; the others are read",
            only="consumers; for all partitions of the session",
        ),
        Check(Right("CLUSTER_ACTION", "CLUSTER"), TOPIC_DENIED + " for all partitions", only="followers"),
    ],
    quota="fetch",
)
def handle(broker: Services, call: Call, request: FetchRequest) -> Any:
    """Handle Fetch: return the response as a list of header bytes and file regions, or a Later if the fetch waits for
    records or runs on a pool."""
    if call.version < FORMAT_2_SINCE or request.partitions > MOST_INLINE:
        return _on_the_pool(broker, call, request)
    context = _context(broker, call, request)
    due = context.partitions
    if len(due) > MOST_ASKED_INLINE and (len(due) > MOST_INLINE or _asks_for_many(broker, call, request, due)):
        return _on_the_pool(broker, call, request, context)
    plan = _plan(broker, call, request, context)
    outcome = plan.read(blocking=False)
    if outcome is None:
        return _on_the_pool(broker, call, request, context, plan)
    if _answers_now(broker, request, context, plan, outcome):
        return _send(broker, call, context, outcome[0])
    later = Later(call)
    _delay(broker, call, request, context, plan, later)
    return later


def _asks_for_many(broker: Services, call: Call, request: FetchRequest, due: list[FetchPartition]) -> bool:
    """Return True if the authorizer must be asked about too many topics for a network thread. After a change of the
    ACLs, all partitions of a session are due, and no rights are remembered."""
    if broker.authorizer is None or request.replica_id >= 0:
        return False
    reads = call.connection.rights.reads  # up to date: `_context` has just checked them
    return len({one.topic for one in due}.difference(reads)) > MOST_ASKED_INLINE


def _plan(broker: Services, call: Call, request: FetchRequest, context: FetchContext) -> FetchPlan:
    session, follower = context.session, request.replica_id if request.replica_id >= 0 else None
    wanted = _wanted(broker, call, session, context.partitions)
    if broker.authorizer is not None:  # asked once: as in Kafka, a fetch that waits keeps its first rights
        rights = call.connection.rights  # up to date: `_context` has just checked them
        for _, one in wanted if follower is None else ():
            if one.topic not in rights.reads:
                wanted = _readable(broker, call, rights, wanted)
                break
        if follower is not None and not rights.is_broker:
            wanted = _replicated(broker, call, rights, wanted)
            if not rights.is_broker:
                context.open_no_session()  # a follower's session would replace sessions of consumers
    most = min(request.max_bytes, broker.config.fetch_max_bytes)
    if call.usage is not None and follower is None:
        most = min(most, call.usage.client.most_to_fetch)
    plan = FetchPlan(
        wanted,
        min_bytes=min(request.min_bytes, most),
        max_bytes=most,
        isolation=consumer_isolation(request.isolation_level),
        cut=request.api_version < FIRST_BATCH_WHOLE_SINCE,
        follower=follower,
    )
    if session is not None:
        plan.look = partial(_look_again, broker, call, context)
    if follower is not None:
        plan.has_news = None if session is None else context.has_news
        plan.throttle = None if broker.throttles.leader.is_idle else broker.throttles.leader
    elif request.rack_id and broker.config["replica.selector.class"] == RACK_AWARE:
        plan.choose = _chooser(broker, call, request)
    return plan


def _chooser(broker: Services, call: Call, request: FetchRequest) -> Callable[[Partition, int], int | None]:
    """Return the function that chooses a replica in the consumer's rack."""
    listener = call.connection.listener

    def rack_of(broker_id: int) -> str | None:
        node = broker.cache.node(broker_id, listener)
        return None if node is None else node.rack

    return lambda partition, offset: replica_in_rack(partition, offset, request.rack_id, rack_of)


def _answers_now(broker: Services, request: FetchRequest, context: FetchContext, plan: FetchPlan, outcome: Any) -> bool:
    _, total, urgent = outcome
    return bool(
        urgent
        or request.max_wait_ms <= 0
        or total >= plan.min_bytes
        or context.is_empty
        or context.error_code != Errors.NONE
        or broker.stopping
    )


def _on_the_pool(
    broker: Services,
    call: Call,
    request: FetchRequest,
    context: FetchContext | None = None,
    plan: FetchPlan | None = None,
) -> Later:
    later = Later(call)
    if plan is not None and plan.blocked is not None:
        pool = pool_of(broker, plan.blocked)
    else:
        pool = _pool_of_first(broker, request, context)
    pool.submit(_read_and_answer, broker, call, request, context, plan, later, pool)
    return later


def _pool_of_first(broker: Services, request: FetchRequest, context: FetchContext | None) -> DiskPool:
    if context is not None:
        names = ((one.topic, one.index) for one in context.partitions)
    else:
        names = ((name, one[0]) for name, _, partitions in request.topics for one in partitions)
    return pool_of_first(broker, ((name, index) for name, index in islice(names, _LOOKED_AT) if name))


def _read_and_answer(
    broker: Services,
    call: Call,
    request: FetchRequest,
    context: FetchContext | None,
    plan: FetchPlan | None,
    later: Later,
    pool: DiskPool,
) -> None:
    """Read and answer a fetch on a pool thread, because the fetch would block, has an old version, or has many
    partitions."""
    try:
        if context is None:
            context = _context(broker, call, request)
        if plan is None:
            plan = _plan(broker, call, request, context)
        outcome = plan.read(blocking=True)
        if outcome is not None and _answers_now(broker, request, context, plan, outcome):
            _answer_on_the_pool(broker, call, context, plan, later, outcome[0], pool)
        else:
            _delay(broker, call, request, context, plan, later)
    except Exception:
        log.exception("%s failed", call)
        later.complete(CLOSE)


class _WaitingFetch(DelayedFetch):
    """A fetch that waits in the purgatory for records."""

    __slots__ = ("_broker", "_call", "_context", "_later")

    def __init__(self, broker: Services, call: Call, context: FetchContext, plan: FetchPlan, later: Later) -> None:
        super().__init__(plan, later.pending)
        self._broker = broker
        self._call = call
        self._context = context
        self._later = later

    def on_complete(self) -> None:
        if self.reply.cancelled:
            return
        broker, call, context, plan = self._broker, self._call, self._context, self.plan
        if context.session is not None:
            context.partitions = context.due_now(to_answer=True)
            plan.wanted = _wanted(broker, call, context.session, context.partitions)
        if call.version >= FORMAT_2_SINCE and len(plan.wanted) <= MOST_INLINE:
            self.reply.complete_with(self._answer)
            return
        pool = _pool_of_first(broker, call.request, context)
        try:
            pool.submit(_answer_with_what_is_there, broker, call, context, plan, self._later, pool)
        except (PoolStopped, NoThread) as error:
            log.warning("%s is not answered: %s", call, error)
            self._later.complete(CLOSE)

    def _answer(self) -> Reply:
        # This runs on the network thread, which must not block. The records that completed the fetch were appended a
        # moment ago and are in the page cache. A partition whose records are not cached gets an empty response; the
        # consumer's next fetch reads them on a pool thread.
        shared = self._broker.replicas.shared_read
        outcome = self.plan.read(blocking=False, busy_is_empty=True, shared=shared)
        assert outcome is not None
        return _send(self._broker, self._call, self._context, outcome[0])


def _delay(
    broker: Services, call: Call, request: FetchRequest, context: FetchContext, plan: FetchPlan, later: Later
) -> None:
    delayed = _WaitingFetch(broker, call, context, plan, later)
    # When the connection closes, end the fetch: with a long max.wait.ms it would stay in the purgatory for days.
    # The race: the network thread sets `cancelled`, then reads `on_cancel`; this thread sets `on_cancel`, then reads
    # `cancelled`. Either the network thread finds the callback, or this thread sees that the connection is closed.
    delayed.reply.on_cancel = delayed.force_complete
    if delayed.reply.cancelled:
        return
    keys: list[Hashable] = [context.session]
    if context.session is None:
        keys = [partition for partition, _ in plan.wanted if isinstance(partition, HostedPartition)]
    broker.replicas.fetch_purgatory.watch(delayed, request.max_wait_ms / 1000, keys)


def _answer_with_what_is_there(
    broker: Services, call: Call, context: FetchContext, plan: FetchPlan, later: Later, pool: DiskPool
) -> None:
    try:
        outcome = plan.read(blocking=True)
        assert outcome is not None
        _answer_on_the_pool(broker, call, context, plan, later, outcome[0], pool)
    except Exception:
        log.exception("%s failed", call)
        later.complete(CLOSE)


def _answer_on_the_pool(
    broker: Services,
    call: Call,
    context: FetchContext,
    plan: FetchPlan,
    later: Later,
    reads: list[FetchRead],
    pool: DiskPool,
) -> None:
    """Complete `later` with the records that were read. They are converted first if the client's version needs an older
    message format."""
    if call.version >= FORMAT_2_SINCE:
        later.complete(_send(broker, call, context, reads))
        return
    from kafkapy.replica.old_clients import OldClientReads  # imported only when needed, for a fast start

    magic = 1 if call.version >= FORMAT_1_SINCE else 0
    _convert_and_answer(broker, call, context, OldClientReads(plan.wanted, reads, magic), later, pool)


def _convert_and_answer(
    broker: Services, call: Call, context: FetchContext, conversion: OldClientReads, later: Later, pool: DiskPool
) -> None:
    """Convert records to an older message format for TURN_S, then queue the rest behind the pool's other work: one
    request may take minutes.

    Complete `later` when all records are converted, or give up as soon as its connection is closed.
    """
    try:
        until = time.monotonic() + TURN_S
        if later.cancelled:
            later.complete(CLOSE)
        elif conversion.convert_some(lambda: time.monotonic() >= until):
            later.complete(_send(broker, call, context, conversion.reads))
        else:
            pool.submit(_convert_and_answer, broker, call, context, conversion, later, pool)
    except Exception:
        log.exception("%s failed", call)
        later.complete(CLOSE)


def _context(broker: Services, call: Call, request: FetchRequest) -> FetchContext:
    rights = rights_of(broker, call) if broker.authorizer is not None else None
    ids = call.version >= TOPIC_IDS_SINCE
    asked = []
    for name, topic_id, partitions in request.topics:
        topic = broker.cache.name_of(topic_id) if ids else name
        for index, leader_epoch, offset, fetched_epoch, start, max_bytes in partitions:
            asked.append(FetchPartition(topic, topic_id, index, offset, max_bytes, leader_epoch, fetched_epoch, start))
    if call.version < FORMAT_2_SINCE:
        # Each partition once, as in Kafka: otherwise a small request could have a partition converted a thousand times.
        asked = list({(one.topic, one.index): one for one in asked}.values())
    if request.session_epoch == FINAL_EPOCH and not request.session_id:  # as all requests before version 7
        return FetchContext(asked)
    forgotten = [
        (topic_id if ids else name, index) for name, topic_id, indexes in request.forgotten for index in indexes
    ]
    is_follower = request.replica_id >= 0
    return broker.fetch_sessions.context(
        request.session_id,
        request.session_epoch,
        asked,
        forgotten,
        uses_topic_ids=ids,
        isolation=READ_TO_LOG_END if is_follower else consumer_isolation(request.isolation_level),
        is_follower=is_follower,
        principal=call.connection.principal,
        refresh_s=broker.replicas.isr_env.max_lag_s / 4 if is_follower else float("inf"),
        rights=rights,
        everything=call.version < ZSTD_SINCE,  # a change of compression.type marks no partition in the session
        now=broker.clock.monotonic(),
    )


def _wanted(broker: Services, call: Call, session: FetchSession | None, due: list[FetchPartition]) -> Wanted:
    wanted: list[tuple[HostedPartition | KafkaError, FetchPartition]] = []
    for asked in due:
        known = asked.partition
        if known is not None and known.gone is None:
            wanted.append((known, asked))
            continue
        partition = _resolve(broker, call, asked)
        wanted.append((partition, asked))
        if session is not None and isinstance(partition, HostedPartition):
            if call.version >= FROM_FOLLOWERS_SINCE and asked.topic_id in (ZERO_ID, partition.log.topic_id):
                asked.partition = partition  # nothing that `_resolve` checks can change while this role lasts
            if asked.watched is not partition.log:
                session.watch(asked, partition.log)  # before the read, so that no later change is missed
    return wanted


def _readable(broker: Services, call: Call, rights: Rights, wanted: Wanted) -> Wanted:
    """Return `wanted`, the partitions of a consumer's fetch, with an error in place of each partition that the client
    may not read. Remember the topics that the client may read."""
    topics = [asked.topic for _, asked in wanted if asked.topic is not None]  # None: no topic has this id
    denied = denied_names(broker, call, "READ", "TOPIC", topics)
    broker.rights.remember(rights.reads, [topic for topic in topics if topic not in denied])
    if not denied:
        return wanted
    error = refusal(Errors.TOPIC_AUTHORIZATION_FAILED)
    return [(error if asked.topic in denied else partition, asked) for partition, asked in wanted]


def _replicated(broker: Services, call: Call, rights: Rights, wanted: Wanted) -> Wanted:
    """Return `wanted`, the partitions of a follower's fetch, with an error in place of each partition if the client
    does not have the right ClusterAction."""
    if not is_denied(broker, call, "CLUSTER_ACTION"):
        rights.is_broker = True
        return wanted
    error = refusal(Errors.TOPIC_AUTHORIZATION_FAILED)
    return [(error, asked) for _, asked in wanted]


def _look_again(broker: Services, call: Call, context: FetchContext) -> Wanted | None:
    """Return the due partitions of a fetch's session if a log has marked a partition as changed, () if none is marked,
    and None if the fetch is over.

    A fetch that waits in the purgatory calls this as FetchPlan.look.
    """
    session = context.session
    if session is None or context.is_over:
        return None
    return _wanted(broker, call, session, context.due_now()) if session.marked else ()


def _resolve(broker: Services, call: Call, asked: FetchPartition) -> HostedPartition | KafkaError:
    if asked.topic is None:  # the topic id was unknown before; the topic may exist by now
        asked.topic = broker.cache.name_of(asked.topic_id)
        if asked.topic is None:
            return KafkaError(Errors.UNKNOWN_TOPIC_ID, "no topic has this id")
    partition: HostedPartition
    try:
        partition = broker.replicas.get(asked.topic, asked.index)
    except KafkaError as error:
        followed = broker.replicas.followed(asked.topic, asked.index)
        if followed is None or followed.gone is not None:
            return error
        if call.request.replica_id >= 0 or call.version < FROM_FOLLOWERS_SINCE:
            try:  # a wrong leader epoch is reported rather than the wrong broker
                followed.check_epoch(asked.current_leader_epoch)
            except KafkaError as wrong_epoch:
                return wrong_epoch
            return error
        partition = followed
    if asked.topic_id != ZERO_ID and partition.log.topic_id not in (None, asked.topic_id):
        return KafkaError(Errors.INCONSISTENT_TOPIC_ID, f"{asked.topic} has another id in its log")
    if call.version < ZSTD_SINCE and partition.log.config.compression_type == "zstd":
        return KafkaError(Errors.UNSUPPORTED_COMPRESSION_TYPE, f"zstd needs Fetch v{ZSTD_SINCE}")
    return partition


def _rank(code: int) -> int:
    """Return the rank of a partition's error in a response with denied topics. As in Kafka, the partitions that were
    read come first, then those of unknown topic ids, then denied and unknown topics."""
    return 1 if code == Errors.UNKNOWN_TOPIC_ID else 2 if code in (_DENIED, Errors.UNKNOWN_TOPIC_OR_PARTITION) else 0


def _send(broker: Services, call: Call, context: FetchContext, reads: list[FetchRead]) -> Reply:
    usage, is_follower = call.usage, call.request.replica_id >= 0
    counted = usage is None or is_follower
    if usage is not None and is_follower:
        usage.quotas.respond(call, usage, exempt=True)
    elif usage is not None and usage.quotas.may_empty_fetch(usage, _bound(reads)):
        counted = True
        if not usage.quotas.respond_to_fetch(call, usage, _size(broker, call, context.would_send(reads))):
            return _encoded(call, *context.leave_unanswered(), [], {})
    error_code, session_id, to_send = context.respond(reads, broker.clock.monotonic())
    for _, read in to_send if broker.authorizer is not None else ():
        if read.error_code == _DENIED:
            to_send.sort(key=lambda sent: _rank(sent[1].error_code))
            break
    leaders: dict[int, Node] = {}
    reply = _encoded(call, error_code, session_id, _topics(broker, call, to_send, leaders, sent=True), leaders)
    if not counted:
        assert usage is not None
        usage.quotas.count_fetch(usage, _counted_bytes(call, reply))
    return reply


def _topics(
    broker: Services,
    call: Call,
    to_send: list[tuple[FetchPartition, FetchRead]],
    leaders: dict[int, Node],
    *,
    sent: bool,
) -> list[tuple[str, bytes, list[Any]]]:
    """Return the results as `encode_fetch_response` takes them. Add the nodes of other brokers that lead partitions to
    `leaders`, by id. If `sent`, count the results in the metrics; False if only their size is needed.
    """
    is_follower = call.request.replica_id >= 0
    topics: list[tuple[str, bytes, list[Any]]] = []
    name, topic_id = None, ZERO_ID
    for asked, read in to_send:
        if not topics or asked.topic != name or asked.topic_id != topic_id:
            name, topic_id = asked.topic, asked.topic_id
            topics.append((name or "", topic_id, []))
        code = read.error_code
        leader, aborted = None, read.aborted
        if code:
            if code in _NOT_READ:
                aborted = []
            if sent:
                broker.meters.error("Fetch", code)
            if call.version >= NAMES_LEADER_SINCE and code in WRONG_LEADER and name is not None:
                leader, node = current_leader(broker, name, asked.index, call.connection.listener)
                if node is not None:
                    leaders[node.id] = node
            if code == Errors.KAFKA_STORAGE_ERROR and call.version < KNOWS_STORAGE_ERROR:
                code = Errors.NOT_LEADER_OR_FOLLOWER
        records: FileRegion | Pieces | bytes = NO_RECORDS
        if read.records is not None:
            records = read.records
            if name is None or not sent:
                pass
            elif not is_follower:
                broker.meters.bytes_out(name, read.records.length)
            else:
                broker.meters.replication_bytes_out.add(read.records.length)
                if broker.throttles.leader.is_throttled(name, asked.index):
                    broker.throttles.leader.record(read.records.length)
        topics[-1][2].append(
            (
                asked.index,
                code,
                read.high_watermark,
                read.last_stable_offset,
                read.log_start_offset,
                aborted,
                read.preferred,
                records,
                None if read.diverging is None and leader is None else (read.diverging, leader),
            )
        )
    return topics


def _encoded(call: Call, error_code: int, session_id: int, topics: list[Any], leaders: dict[int, Node]) -> list[Any]:
    return encode_fetch_response(
        call.version,
        call.correlation_id,
        call.throttle_time_ms,
        error_code,
        session_id,
        topics,
        list(leaders.values()),
    )


class _Length(NamedTuple):
    """Stands for records of this length, where only the size of a response is needed."""

    length: int


def _bound(reads: list[FetchRead]) -> int:
    """Return a number of bytes that the response with these results does not exceed."""
    size = 100 + 400 * len(reads)  # a topic's name has at most 249 characters
    for read in reads:
        if read.records is not None:
            size += read.records.length
        if read.aborted:
            size += 24 * len(read.aborted)
    return size


def _size(broker: Services, call: Call, to_send: list[tuple[FetchPartition, FetchRead]]) -> int:
    """Return how many bytes of the quota a response with these results takes."""
    topics = [
        (
            name,
            topic_id,
            [
                (*part[:7], _Length(len(part[7]) if isinstance(part[7], bytes) else part[7].length), part[8])
                for part in parts
            ],
        )
        for name, topic_id, parts in _topics(broker, call, to_send, {}, sent=False)
    ]
    return _counted_bytes(call, _encoded(call, Errors.NONE, 0, topics, {}))


def _counted_bytes(call: Call, frame: list[Any]) -> int:
    """Return the size of a response as Kafka counts it (FetchResponse.sizeOf): the frame with its size, without the
    header, which is longer by a byte since version 12."""
    return int.from_bytes(frame[0][:4], "big") - (call.version >= FLEXIBLE_SINCE)
