"""The quotas of a broker's clients, and what the clients have used of them. Sources: ClientQuotaManager,
ClientRequestQuotaManager, ControllerMutationQuotaManager, and KafkaApis for what is counted when.

The usage of a request is counted when its response is encoded. If it exceeds a quota, the response has the throttle
time, and the connection is muted: nothing is read from it before that time is over. Its pending responses are sent. A
timer of the network thread ends the mute, so no thread waits.

- Produce counts the bytes of the request, after its records were appended; before that if the quota will certainly not
  be exceeded.
- Fetch counts the bytes of the response. If they exceed a quota, an empty response is sent instead, and no bytes are
  counted.
- All requests count the time of the handler on a thread, in percent of one thread's time. The throttle time is one
  window at most. Requests between brokers are exempt, and so are Produce requests with acks=0.
- CreateTopics, DeleteTopics and CreatePartitions count partitions: see `mutations`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from kafkapy.errors import Errors, KafkaError
from kafkapy.metadata.quotas import CONSUMER, MUTATION, PRODUCER, REQUEST, Entity
from kafkapy.metadata.users import path_name
from kafkapy.runtime.rates import UNLIMITED, Rate, Windows
from kafkapy.server.call import Usage
from kafkapy.server.quotas.buckets import STATISTICS, Bucket, Buckets
from kafkapy.server.quotas.levels import Applied, Kind, Pair, applied, kind_of

if TYPE_CHECKING:
    from kafkapy.runtime.clock import Clock
    from kafkapy.server.call import Call

KEYS: Final = (PRODUCER, CONSUMER, REQUEST, MUTATION)
EXEMPT: Final = "exempt"
PRODUCE: Final = "produce"
FETCH: Final = "fetch"
LARGEST: Final = (1 << 31) - 1  # bytes in a response
_LONGEST_NAME: Final = 1000  # characters of a client id, as in paths, that are kept for its bucket


class _Kind:
    """One of the four kinds of quotas: its limits by entity, and their usage."""

    def __init__(self, windows: Windows, on_removed: Callable[[], None], *, of_tokens: bool = False) -> None:
        self.windows = windows
        self.limits: dict[Pair, float] = {}
        self.kinds: set[Kind] = set()
        self.buckets = Buckets(lambda shares, now: Bucket(shares, windows, now, of_tokens=of_tokens), on_removed)


class Client:
    """The buckets of a connection's client, None for kinds of quotas that are set for no entity.

    most_to_fetch   the size of the largest Fetch response that does not exceed the quota if nothing else is fetched
    fetching        the Usage that all Fetch requests share if only their bytes are counted; None if no bytes are
    """

    __slots__ = ("consumer", "fetching", "generation", "id", "most_to_fetch", "mutation", "producer", "request")

    def __init__(self, quotas: ClientQuotas, client_id: str, generation: int, buckets: list[Bucket | None]) -> None:
        self.id = client_id
        self.generation = generation
        self.producer, self.consumer, self.request, self.mutation = buckets
        self.most_to_fetch = LARGEST
        self.fetching = None if self.consumer is None else Usage(quotas, self, 0)
        if self.consumer is not None:
            self.most_to_fetch = int(min(LARGEST, self.consumer.limit * quotas.burst_s))


class InUse(NamedTuple):
    """A quota that applies to a client, the user and client id for which it was set, and how much of it is in use."""

    key: str
    entity: Pair
    limit: float
    used: float


class ClientQuotas:
    """The quotas of users and client ids. Any thread may call the methods.

    A connection remembers its client's buckets under one generation number, so that counting looks nothing up.
    """

    def __init__(self, clock: Clock, windows: Windows, mutation_windows: Windows) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._generation = 0  # grows with each change of the limits, and when buckets are removed
        self._longest_ms = windows.ms
        self.burst_s = (windows.number - 1) * (windows.ms / 1000)  # a client may use this many seconds' quota at once
        self._kinds = {key: _Kind(windows, self._renew) for key in (PRODUCER, CONSUMER, REQUEST)}
        self._kinds[MUTATION] = _Kind(mutation_windows, self._renew, of_tokens=True)
        self._exempt = Rate(STATISTICS)
        self.count_time = False  # whether a quota of request time is set, so that the time of requests is measured

    # --- the limits

    @property
    def are_set(self) -> bool:
        """Return True if any quota is set."""
        return any(kind.limits for kind in self._kinds.values())

    def change(self, entity: Entity, quotas: Mapping[str, float]) -> None:
        """Apply the quotas of an entity, {} for none, from the next request on."""
        pair = entity.user, entity.client_id
        with self._lock:
            for key, kind in self._kinds.items():
                kind.kinds.add(kind_of(pair))
                if key in quotas:
                    kind.limits[pair] = quotas[key]
                else:
                    kind.limits.pop(pair, None)
            self.count_time = bool(self._kinds[REQUEST].limits)
            self._renew()

    def _renew(self) -> None:
        self._generation += 1

    def applied(self, key: str, user: str, client_id: str) -> Applied:
        """Return the quota of this name that applies to a client of this user."""
        kind = self._kinds[key]
        with self._lock:
            return applied(kind.limits, path_name(user), path_name(client_id), kind.kinds)

    # --- what is counted

    def begin(self, call: Call, size: int, now: float = 0.0) -> bool:
        client: Client | None = call.connection.quota_client
        if client is None or client.generation != self._generation or client.id != call.client_id:
            client = call.connection.quota_client = self._look_up(call.connection.principal, call.client_id)
        what = call.served.quota
        if what == PRODUCE:
            # Nearly all Produce requests are far below the quota of bytes, and it takes less time to count them here.
            bucket, now = client.producer, now or self._clock.monotonic()
            if bucket is None or bucket.rate.record_if_far_below(size, bucket.limit, int(now * 1000)):
                if client.request is not None:
                    call.usage = Usage(self, client, 0)
                return False
            call.usage = Usage(self, client, size)
            return True
        if what == FETCH and client.request is None:
            call.usage = client.fetching
        elif client.request is not None or client.mutation is not None:
            call.usage = Usage(self, client, size)
        return False

    def respond(self, call: Call, usage: Usage, *, exempt: bool = False) -> None:
        if usage.client.request is not None or usage.mutations is not None:
            exempt = exempt or (call.served.quota == EXEMPT and not call.denied)
            self._throttle(call, usage, 0, None, self.now_ms(), exempt=exempt)

    def respond_to_produce(self, call: Call, usage: Usage) -> None:
        now = self.now_ms()
        bucket = usage.client.producer
        ms = bucket.record(usage.size, now) if bucket is not None and usage.size else 0
        if ms or usage.client.request is not None:
            self._throttle(call, usage, ms, bucket, now, exempt=not call.request.acks)

    def may_empty_fetch(self, usage: Usage, size: int) -> bool:
        bucket, request = usage.client.consumer, usage.client.request
        if bucket is not None and bucket.rate.may_exceed(bucket.limit, size):
            return True
        return request is not None and request.rate.may_exceed(request.limit, usage.seconds() * 100)

    def count_fetch(self, usage: Usage, size: int) -> None:
        client, now = usage.client, self.now_ms()
        if client.consumer is not None:
            client.consumer.rate.record(size, now)
        if client.request is not None:
            client.request.rate.record(usage.seconds() * 100, now)

    def respond_to_fetch(self, call: Call, usage: Usage, size: int) -> bool:
        now = self.now_ms()
        bucket = usage.client.consumer
        ms = bucket.record(size, now) if bucket is not None else 0
        self._throttle(call, usage, ms, bucket, now)
        if call.throttle_time_ms and bucket is not None:
            bucket.add(-size, now)
        return not call.throttle_time_ms

    def mutations(self, call: Call, usage: Usage, strict_since: int) -> Mutations:
        return Mutations(usage.client.mutation, self._clock, strict=call.version >= strict_since)

    def _throttle(
        self, call: Call, usage: Usage, ms: int, bucket: Bucket | None, now: int, *, exempt: bool = False
    ) -> None:
        """Count the time of a request, and mute its connection for the longest throttle time of its quotas. `ms` is the
        throttle time of the quota of `bucket`."""
        client = usage.client
        if client.request is not None:
            percent = usage.seconds() * 100
            if exempt:
                self._exempt.record(percent, now)
            else:
                time_ms = min(client.request.record(percent, now), self._longest_ms)
                if time_ms >= ms and time_ms:
                    ms, bucket = time_ms, client.request
        if usage.mutations is not None and usage.mutations.throttle_ms(now) > ms:
            ms, bucket = usage.mutations.throttle_ms(now), client.mutation
        call.throttle_time_ms = ms
        if ms and bucket is not None:
            bucket.throttled(ms, now)
            connection = call.connection
            connection.processor.call(connection.processor.mute, connection, self._clock.monotonic() + ms / 1000)

    # --- buckets

    def now_ms(self) -> int:
        """Return the time of the quotas' clock in ms."""
        return int(self._clock.monotonic() * 1000)

    def _look_up(self, principal: str, client_id: str) -> Client:
        user, client = path_name(principal.partition(":")[2]), path_name(client_id)
        if len(client) > _LONGEST_NAME:  # a client can invent 10,000 client ids of 32,767 characters
            client = f"{client[:_LONGEST_NAME]}-{hash(client_id):x}"
        now = self.now_ms()
        with self._lock:
            buckets = [self._bucket(kind, user, client, now) for kind in self._kinds.values()]
            return Client(self, client_id, self._generation, buckets)

    def _bucket(self, kind: _Kind, user: str, client_id: str, now: int) -> Bucket | None:
        if not kind.limits:
            return None
        found = applied(kind.limits, user, client_id, kind.kinds)
        bucket = kind.buckets.get(found.shares, now)
        bucket.limit = UNLIMITED if found.limit is None else found.limit
        return bucket

    def expire(self) -> None:
        """Forget the usage of clients that have sent nothing for an hour."""
        now = self.now_ms()
        with self._lock:
            for kind in self._kinds.values():
                kind.buckets.expire(now)

    # --- what is shown

    def usage(self, user: str, client_id: str) -> list[InUse]:
        """Return the quotas that apply to a client, with their usage."""
        found = []
        for key in KEYS:
            shares, entity, limit = self.applied(key, user, client_id)
            if entity is not None and limit is not None:
                bucket = self._find(key, shares)
                used = 0.0 if bucket is None else bucket.used(self.now_ms())
                if key == MUTATION and bucket is not None:  # the tokens missing from a full bucket, per second
                    used = limit - used / self._kinds[key].windows.seconds
                found.append(InUse(key, entity, limit, used))
        return found

    def _find(self, key: str, shares: Pair) -> Bucket | None:
        with self._lock:
            return self._kinds[key].buckets.find(shares)

    def used(self, key: str, shares: Pair) -> float:
        """Return the current rate of the clients that share a quota; for controller_mutation_rate the tokens left."""
        bucket = self._find(key, shares)
        return 0.0 if bucket is None else bucket.used(self.now_ms())

    def buckets(self, key: str) -> Iterator[Bucket]:
        with self._lock:
            return iter(self._kinds[key].buckets)

    def exempt_percent(self) -> float:
        """Return the time of requests that are exempt, in percent of one thread's time."""
        return self._exempt.measure(self.now_ms())


class Mutations:
    """The partitions that one request creates and deletes, against the quota of its client (None: there is no quota).

    Source: StrictControllerMutationQuota and PermissiveControllerMutationQuota.
    """

    def __init__(self, bucket: Bucket | None, clock: Clock, *, strict: bool) -> None:
        self._bucket = bucket
        self._clock = clock
        self._strict = strict
        self._until_ms = 0

    def record(self, partitions: int) -> None:
        """Count partitions. Raise KafkaError THROTTLING_QUOTA_EXCEEDED if they must not be created or deleted now."""
        if self._bucket is None:
            return
        now = int(self._clock.monotonic() * 1000)
        taken, ms = self._bucket.take(partitions, now, strict=self._strict)
        if ms:
            self._until_ms = now + ms
        if not taken:
            raise KafkaError(Errors.THROTTLING_QUOTA_EXCEEDED, "The throttling quota has been exceeded.")

    def throttle_ms(self, now: int) -> int:
        """Return for how many ms the connection is throttled from `now` on."""
        return max(0, self._until_ms - now)
