"""The APIs and versions that the broker serves, with their handlers. ApiVersions responses are made from this table."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from kafkapy.server.checks import actions_of

if TYPE_CHECKING:
    from kafkapy.protocol.apis import Api
    from kafkapy.runtime.disk_pool import DiskPool
    from kafkapy.server.admission import Action
    from kafkapy.server.call import Call
    from kafkapy.server.checks import Checks
    from kafkapy.server.services import Services

Handler = Callable[..., Any]
ChoosePool = Callable[["Services", Any], "DiskPool"]  # the pool for a request
Authorizes = Callable[["Services", "Call"], "list[Action]"]
Decode = Callable[[memoryview | bytearray], Any]


class Joins(NamedTuple):
    """Two functions that decide which requests of an API are joined, which means handled by one call of the handler.

    `same_connection(first, call)` returns True if `call` may be joined with `first`, an earlier call on the same
    connection. None in place of this function means that calls of one connection are never joined.

    `other_connections(calls)` returns True if `calls`, all calls that a connection has sent, may be joined with calls
    of other connections. Joined calls wait until the network thread has read its other connections. This function is
    not called if the frames are larger than 4 KiB together.
    """

    same_connection: Callable[[Call, Call], bool] | None
    other_connections: Callable[[list[Call]], bool]


class Served:
    """One API as this broker serves it: versions `low` to `high`. `ApiTable.serves` describes the other attributes."""

    __slots__ = (
        "any_version",
        "api",
        "authorizes",
        "checks",
        "decode",
        "decoded_late",
        "handler",
        "high",
        "in_order",
        "is_asked_for",
        "joins",
        "low",
        "pooled",
        "quota",
        "refused_undecoded",
    )

    def __init__(
        self,
        api: Api,
        handler: Handler,
        low: int,
        high: int,
        *,
        decode: Decode | None,
        joins: Joins | None,
        pooled: bool | ChoosePool,
        decoded_late: bool,
        refused_undecoded: bool,
        any_version: bool,
        checks: Checks,
        authorizes: Authorizes | None,
        asks_itself: bool,
        in_order: bool,
        quota: str,
    ) -> None:
        self.api = api
        self.handler = handler
        self.low = low
        self.high = high
        self.decode = decode
        self.joins = joins
        self.pooled = pooled
        self.decoded_late = decoded_late
        self.refused_undecoded = refused_undecoded
        self.any_version = any_version
        self.checks = checks
        self.authorizes = actions_of(checks) if authorizes is None else authorizes
        # True: the dispatcher asks the authorizer, before it joins a request with others
        self.is_asked_for = self.authorizes is not None and not asks_itself
        self.in_order = in_order
        self.quota = quota


class ApiTable:
    """The APIs that the broker serves, by API key, with their handlers."""

    def __init__(self) -> None:
        self._served: dict[int, Served] = {}
        self.find: Callable[[int], Served | None] = self._served.get

    def serves(
        self,
        api: Api,
        *,
        checks: Checks,
        low: int | None = None,
        high: int | None = None,
        decode: Decode | None = None,
        joins: Joins | None = None,
        pooled: bool | ChoosePool = False,
        decoded_late: bool = False,
        refused_undecoded: bool = False,
        any_version: bool = False,
        authorizes: Authorizes | None = None,
        asks_itself: bool = False,
        in_order: bool = False,
        quota: str = "request",
    ) -> Callable[[Handler], Handler]:
        """Return a decorator that registers a handler for the versions `low` to `high` of an API, by default for all
        versions of its schema. Raise ValueError for other versions, without `checks`, and for an API that has a handler
        already. The handler is called as `handler(broker, call, request)` and returns a response message, a Later or a
        Reply.

        checks          the rights that requests need, or a NoCheck with the reason why they need none. Before a request
                        is handled, the authorizer is asked for the resources that the checks name; the handler finds
                        the denied actions in `call.denied`. The handler asks for all other resources itself: see
                        `kafkapy.server.checks`.
        decode          decodes the header and the request of a frame in one call. Returns a request with `api_version`,
                        `correlation_id` and `client_id`, or None to let the generic codec decode the frame. The request
                        may contain views of the frame. Without `decode` the generic codec decodes every request,
                        without views.
        joins           decides which requests are handled in one call. The handler is then called as
                        `handler(broker, lists)`, with a list of calls for each connection, and returns a list of
                        replies for each connection. Requests may have views of the receive buffer only if there is a
                        single list.
        pooled          the handler may block (disk, metadata), so it runs on the disk pool, or on the pool that
                        `pooled(broker, request)` returns; meanwhile its connection is not read. All other handlers run
                        on the network thread and must not block.
        decoded_late    the pool also decodes large requests, which would delay the network thread. `pooled` and
                        `checks` must not look at the request.
        refused_undecoded
                        with `decoded_late`: a large request is not decoded if its client lacks the right. The handler
                        refuses it without looking at it.
        any_version     a version without a schema is also handled: as version 0, with the request None.
        authorizes      in place of the function that is made from `checks`: `authorizes(broker, call)` returns the
                        actions to ask for. Not called without an authorizer.
        asks_itself     the handler asks the authorizer, unless the authorizer has a pool: for an API whose requests are
                        too many to list their actions each time.
        in_order        the authorizer is asked for one type of resource after the other, and no further if all actions
                        on one type are denied.
        quota           "exempt" for requests between brokers, whose time counts for no quota; "produce" and "fetch" for
                        requests that count for the quotas of bytes.
        """
        if not checks:
            raise ValueError(f"{api.name}: say what requests must be allowed to do, or NoCheck")
        first = api.min_version if low is None else low
        last = api.max_version if high is None else high
        if not api.min_version <= first <= last <= api.max_version:
            raise ValueError(
                f"{api.name}: versions {first} to {last} are not within {api.min_version} to {api.max_version}"
            )

        def register(handler: Handler) -> Handler:
            if api.key in self._served:
                raise ValueError(f"{api.name} has a handler already: {self._served[api.key].handler!r}")
            self._served[api.key] = Served(
                api,
                handler,
                first,
                last,
                decode=decode,
                joins=joins,
                pooled=pooled,
                decoded_late=decoded_late,
                refused_undecoded=refused_undecoded,
                any_version=any_version,
                checks=checks,
                authorizes=authorizes,
                asks_itself=asks_itself,
                in_order=in_order,
                quota=quota,
            )
            return handler

        return register

    def versions(self) -> dict[int, tuple[int, int]]:
        """Return (lowest version, highest version) of each served API, by API key, for ApiVersions responses."""
        return {key: (served.low, served.high) for key, served in self._served.items()}


TABLE = ApiTable()
serves = TABLE.serves
