"""Which APIs and versions the broker serves: the handlers register here, and ApiVersions is derived from it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kafkapy.protocol.apis import Api
    from kafkapy.runtime.disk_pool import DiskPool
    from kafkapy.server.services import Services

Handler = Callable[..., Any]
ChoosePool = Callable[["Services", Any], "DiskPool"]  # for a request


class Served:
    """One API as this broker serves it: versions `low` to `high`; `pooled` handlers run on the disk pool, or on the one
    that is chosen for a request."""

    __slots__ = ("api", "handler", "high", "low", "pooled")

    def __init__(self, api: Api, handler: Handler, low: int, high: int, pooled: bool | ChoosePool) -> None:
        self.api = api
        self.handler = handler
        self.low = low
        self.high = high
        self.pooled = pooled


class ApiTable:
    """API key -> Served."""

    def __init__(self) -> None:
        self._served: dict[int, Served] = {}

    def serves(
        self, api: Api, *, low: int | None = None, high: int | None = None, pooled: bool | ChoosePool = False
    ) -> Callable[[Handler], Handler]:
        """Registers a handler: `handler(broker, call, request)` returns a response message or a Later.

        A handler that may block (disk, metadata) is `pooled`: it runs on the disk pool, and its connection
        waits for it. All others run on the network thread and must not block.
        """
        first = api.min_version if low is None else low
        last = api.max_version if high is None else high
        if not api.min_version <= first <= last <= api.max_version:
            raise ValueError(
                f"{api.name}: versions {first} to {last} are not within {api.min_version} to {api.max_version}"
            )

        def register(handler: Handler) -> Handler:
            if api.key in self._served:
                raise ValueError(f"{api.name} has a handler already: {self._served[api.key].handler!r}")
            self._served[api.key] = Served(api, handler, first, last, pooled)
            return handler

        return register

    def find(self, key: int) -> Served | None:
        return self._served.get(key)

    def versions(self) -> dict[int, tuple[int, int]]:
        """API key -> (lowest version, highest version): what ApiVersions promises."""
        return {key: (served.low, served.high) for key, served in self._served.items()}


TABLE = ApiTable()
serves = TABLE.serves
