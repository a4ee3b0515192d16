"""Sends the controller's requests to the brokers: to each broker in order, one at a time.

Requests to this broker are carried out on the thread that also carries out the requests of other controllers. Requests
to others go over a link each, and are repeated until there is a response or the controller knows that the broker is
gone. Source: kafka.controller.ControllerChannelManager.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from kafkapy.controller.requests import Answered, Failures, MetadataRequest, Request, RolesRequest
from kafkapy.errors import Errors, KafkaError, name_of
from kafkapy.metadata.cache import LiveBroker
from kafkapy.runtime import collector
from kafkapy.runtime.disk_pool import PoolStopped
from kafkapy.runtime.threads import NoThread
from kafkapy.server.request_encoding import API_OF, RequestEncoding

if TYPE_CHECKING:
    from kafkapy.replica.links import LinkError
    from kafkapy.runtime.timer import Timer
    from kafkapy.server.services import Services

log = logging.getLogger("kafkapy.server.controller_requests")

_RETRY_S = 0.1
_NO_THREAD_S = 1.0


class _Queued(NamedTuple):
    """A request to another broker. `message(version)` returns it as a message, or encoded."""

    request: Request
    answered: Answered
    message: Callable[[int], Any]


class BrokerChannels:
    """Implements kafkapy.controller.requests.Channels. Any thread may call the methods; only `wait_for_own` and
    `wait_for_others` block.
    """

    def __init__(self, services: Services, timer: Timer) -> None:
        self._services = services
        self._timer = timer
        self._lock = threading.Lock()
        self._channels: dict[int, _Channel] = {}
        self._own: deque[tuple[Request, Answered]] = deque()  # requests to this broker
        self._own_brokers: Sequence[LiveBroker] | None = None  # last sent to this broker in this term
        self._encoding = RequestEncoding(services)  # used by the controller's thread only

    def send(self, broker: LiveBroker, requests: Sequence[tuple[Request, Answered]]) -> None:
        if broker.id == self._services.broker_id:
            with self._lock:
                self._own.extend(requests)
            self._carry_out_later()
            return
        with self._lock:
            channel = self._channels.get(broker.id)
            if channel is None:
                channel = self._channels[broker.id] = _Channel(self._services, self._timer, broker)
        # Encoded here, on the controller's thread: thousands of partitions would delay the network thread.
        channel.send(broker, [_Queued(*one, self._encoding.of(one[0])) for one in requests])

    def forget(self, broker_ids: Collection[int]) -> None:
        with self._lock:
            if self._services.broker_id in broker_ids:
                self._own_brokers = None
            channels = [self._channels.pop(one) for one in broker_ids if one in self._channels]
        for channel in channels:
            channel.close()

    def close(self) -> None:
        """Drop all requests that have not been sent."""
        self.forget(list(self._channels))

    def wait_for_own(self) -> None:
        """Block until this broker has carried out all requests that were sent to it."""
        done = threading.Event()
        try:
            self._services.cluster_pool.submit(self._carry_out_all)
            self._services.cluster_pool.submit(done.set)
        except (PoolStopped, NoThread):
            return
        done.wait()

    def wait_for_others(self, timeout_s: float) -> bool:
        with self._lock:
            channels = list(self._channels.values())
        deadline = time.monotonic() + timeout_s
        waits = [channel.finished() for channel in channels]
        return all(finished.wait(max(deadline - time.monotonic(), 0)) for finished in waits)

    def _carry_out_later(self) -> None:
        try:
            self._services.cluster_pool.submit(self._carry_out_all)
        except PoolStopped:
            log.debug("requests of the controller are not carried out any more: the broker stops")
        except NoThread as error:
            log.warning("requests of the controller to this broker wait: %s", error)
            self._timer.schedule(_NO_THREAD_S, self._carry_out_later)

    def _carry_out_all(self) -> None:
        while True:
            with self._lock:
                if not self._own:
                    return
                request, answered = self._own.popleft()
            failures: Failures
            try:
                failures = self._carry_out(request)
            except Exception as error:
                log.exception("a request of the controller to this broker failed")
                failures = _all_of(request, KafkaError(Errors.UNKNOWN_SERVER_ERROR, str(error)))
            answered(failures)

    def _carry_out(self, request: Request) -> Failures:
        """Carry out a request on this broker, as the handlers do with those of another controller."""
        services = self._services
        failures: Failures = {}
        if isinstance(request, MetadataRequest):
            if services.roles.accepts(request.controller_epoch):
                if request.brokers != self._own_brokers:
                    self._own_brokers = request.brokers
                    others = [one for one in request.brokers if one.id != services.broker_id]
                    # This broker also knows the addresses of listeners that it does not advertise.
                    services.cache.set_brokers(services.broker_id, [*others, services.this])
                services.cache.update(request.partitions)
        elif isinstance(request, RolesRequest):
            failures = services.roles.apply(request.controller_epoch, request.roles)
            collector.long_lived(len(request.roles))
        else:
            failures = services.roles.apply(request.controller_epoch, request.stops)
        return failures


class _Channel:
    """The requests to one other broker."""

    def __init__(self, services: Services, timer: Timer, broker: LiveBroker) -> None:
        self._services = services
        self._timer = timer
        self._broker = broker
        self._lock = threading.Lock()
        self._queue: deque[_Queued] = deque()
        self._waiting: list[threading.Event] = []
        self._in_flight = False
        self._closed = False
        self._problem = ""
        self._link = services.peers.make(broker.id, "controller", self._address)

    def _address(self) -> tuple[str, int] | None:
        return self._broker.endpoints.get(self._services.config.inter_broker_listener)

    def send(self, broker: LiveBroker, requests: Sequence[_Queued]) -> None:
        with self._lock:
            self._broker = broker
            self._queue.extend(requests)
        self._next()

    def finished(self) -> threading.Event:
        """Return an event that is set when the broker has responded to all requests that wait now, or is gone."""
        finished = threading.Event()
        with self._lock:
            if not self._queue:
                finished.set()
                return finished
            answered = self._queue[-1].answered

            def last_answered(failures: Failures) -> None:
                answered(failures)
                with self._lock:
                    self._waiting.remove(finished)
                finished.set()

            self._queue[-1] = self._queue[-1]._replace(answered=last_answered)
            self._waiting.append(finished)
        return finished

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._queue.clear()
            for finished in self._waiting:
                finished.set()
        self._link.close()

    def _next(self) -> None:
        with self._lock:
            if self._in_flight or self._closed or not self._queue:
                return
            self._in_flight = True
            one = self._queue[0]
        api, versions = API_OF[type(one.request)]
        self._link.ask(
            api,
            one.message,
            self._answered,
            timeout_s=self._services.config["controller.socket.timeout.ms"] / 1000,
            versions=versions,
        )

    def _answered(self, response: Any, error: LinkError | None) -> None:
        if error is not None:
            with self._lock:
                self._in_flight = False
                closed = self._closed
            if not closed:
                if str(error) != self._problem:
                    self._problem = str(error)
                    log.warning("the controller's requests cannot be sent to broker %d: %s", self._broker.id, error)
                self._timer.schedule(_RETRY_S, self._next)
            return
        self._problem = ""
        with self._lock:
            self._in_flight = False
            if self._closed or not self._queue:
                return
            request, answered, _ = self._queue.popleft()
        if response.error_code != Errors.NONE:
            log.warning(
                "broker %d refuses a %s of controller epoch %d: %s",
                self._broker.id, type(request).__name__, request.controller_epoch, name_of(response.error_code),
            )  # fmt: skip
        answered(_failures(request, response))
        self._next()


def _all_of(request: Request, error: KafkaError) -> dict[tuple[str, int], KafkaError]:
    """Return the error for each partition of the request."""
    if isinstance(request, MetadataRequest):
        return {}
    whole = request.roles if isinstance(request, RolesRequest) else request.stops
    return dict.fromkeys(((one.topic, one.partition) for one in whole), error)


def _failures(request: Request, response: Any) -> dict[tuple[str, int], KafkaError]:
    """Return the errors of partitions in a response."""
    if isinstance(request, MetadataRequest):
        return {}
    if response.error_code != Errors.NONE:  # nothing was done
        code = response.error_code
        return _all_of(request, KafkaError(code, f"the broker answers {name_of(code)}"))
    errors: dict[tuple[str, int], int] = {}
    names = {one.topic_id: one.topic for one in request.roles} if isinstance(request, RolesRequest) else {}
    for topic in getattr(response, "topics", None) or ():
        name = names.get(topic.topic_id, "")
        errors.update(((name, one.partition_index), one.error_code) for one in topic.partition_errors)
    for one in response.partition_errors or ():
        errors[one.topic_name, one.partition_index] = one.error_code
    return {
        key: KafkaError(code, f"the broker answers {name_of(code)}")
        for key, code in errors.items()
        if code != Errors.NONE
    }
