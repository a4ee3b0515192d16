"""The acceptor: accepts connections within the limits and distributes them round-robin over the processors.

One thread accepts the connections of all listeners, so it waits for none of them. A listener whose connections come
faster than its rate allows keeps one accepted connection waiting, and is not polled until that connection is served.
Connections of an address that exceeds its rate are accepted, but only to be closed later.
"""

from __future__ import annotations

import errno
import logging
import os
import select
import socket
from collections.abc import Sequence
from typing import NamedTuple

from kafkapy._ext import syscalls
from kafkapy.network.limits import ConnectionLimits
from kafkapy.network.metrics import METRICS
from kafkapy.network.processor import Processor
from kafkapy.network.settings import Listener, NetworkSettings
from kafkapy.network.throttled import ThrottledConnections
from kafkapy.runtime.addresses import host_port
from kafkapy.runtime.clock import Clock
from kafkapy.runtime.counters import Counter, Registry
from kafkapy.runtime.line_limit import LineLimit
from kafkapy.runtime.logs import fields
from kafkapy.runtime.threads import Thread

log = logging.getLogger(__name__)

_A_TURN = 64
_EXHAUSTED = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
_PAUSE_MS = 200


class Waiting(NamedTuple):
    """An accepted connection that is not served before `until_ms`, because its listener is above its rate."""

    sock: socket.socket
    peer: tuple[str, int]
    until_ms: int


class DelayCounters:
    """The counters of the connections of one listener that came too fast, and of the seconds that they waited."""

    def __init__(self, counters: Registry, listener: str) -> None:
        self._delayed = counters.register(METRICS["network_connections_delayed"], Counter(), listener)
        self._delay_s = counters.register(METRICS["network_connection_delay_seconds"], Counter(), listener)
        self._throttled = counters.register(METRICS["network_connections_throttled"], Counter(), listener)
        self._throttle_s = counters.register(METRICS["network_connection_throttle_seconds"], Counter(), listener)

    def delayed(self, delay_ms: int) -> None:
        """Count a connection that is served later, because of the rate of the broker or of the listener."""
        self._delayed.add()
        self._delay_s.add(delay_ms / 1000)

    def throttled(self, delay_ms: int) -> None:
        """Count a connection that is not served, because of the rate of its address."""
        self._throttled.add()
        self._throttle_s.add(delay_ms / 1000)


class Acceptor:
    """The thread that accepts the connections of all listeners.

    A listener that has reached its connection limit is not polled until a connection closes.
    """

    def __init__(
        self,
        sockets: Sequence[tuple[Listener, socket.socket]],
        processors: Sequence[Processor],
        limits: ConnectionLimits,
        settings: NetworkSettings,
        counters: Registry,
        clock: Clock,
    ) -> None:
        self._sockets = {sock.fileno(): (listener, sock) for listener, sock in sockets}
        self._processors = processors
        self._next_processor = 0
        self._limits = limits
        self._settings = settings
        self._epoll = select.epoll()
        self._event = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._stopping = False
        self._watched: set[int] = set()
        self._waiting: dict[int, Waiting] = {}  # by the descriptor of the listening socket
        self._throttled = ThrottledConnections()
        self._clock = clock
        self._lines = LineLimit(clock)
        self._thread = Thread(self._run, "kafkapy-acceptor")
        self._accepted = counters.register(METRICS["network_connections_accepted"], Counter())
        self._rejected = counters.register(METRICS["network_connections_rejected"], Counter())
        self._paused = counters.register(METRICS["network_acceptor_pauses"], Counter())
        self._delays = {listener.name: DelayCounters(counters, listener.name) for listener, _ in sockets}

    def start(self) -> None:
        self._epoll.register(self._event, select.EPOLLIN)
        self._limits.on_release = self.wake
        self._clock.subscribe(self.wake)
        self._thread.start()

    def wake(self) -> None:
        """Have the acceptor's thread check the connection limits again. May be called from any thread."""
        if not self._stopping:
            syscalls.event_set(self._event)

    def stop(self) -> None:
        """End the acceptor's thread and close the listening sockets, so that the kernel refuses connections."""
        if self._stopping:
            return
        self._stopping = True
        syscalls.event_set(self._event)
        if self._thread.is_alive():
            self._thread.join()
        for _, sock in self._sockets.values():
            sock.close()
        for waiting in self._waiting.values():
            waiting.sock.close()
        self._throttled.close_all()
        self._epoll.close()
        # The eventfd stays open until __del__: a thread that releases a connection may have found `_stopping` False in
        # `wake`, and sets the eventfd after this. If it were closed by then, its number could be another file's.

    def __del__(self) -> None:
        os.close(self._event)

    def _run(self) -> None:
        exhausted = False
        while not self._stopping:
            try:
                deadline_ms = self._serve_waiting()
                self._watch_those_with_room(not exhausted)
                ready = syscalls.epoll_wait(
                    self._epoll.fileno(), _PAUSE_MS if exhausted else self._wait_ms(deadline_ms)
                )
                exhausted = False
                syscalls.event_clear(self._event)
                for fd, _ in ready:
                    if fd in self._sockets and not self._stopping:
                        exhausted |= not self._accept_from(*self._sockets[fd])
                if exhausted:
                    self._throttled.close_all()
            except Exception:
                log.exception("an iteration of the acceptor's loop failed")
                exhausted = True

    def _serve_waiting(self) -> int | None:
        """Serve the waiting connections whose time has come, if their listeners have room, and close the throttled
        connections whose time has come. Return the earliest of the times that are still to come, in ms, or None.
        """
        now_ms = self._now_ms()
        deadlines = [self._throttled.close_due(now_ms)]
        for fd, (sock, peer, until_ms) in list(self._waiting.items()):
            listener, _ = self._sockets[fd]
            if until_ms > now_ms:
                deadlines.append(until_ms)
            elif self._limits.has_room(listener.name):  # otherwise the acceptor is woken when there is room
                del self._waiting[fd]
                self._serve(listener, sock, peer, now_ms)
        return min((deadline for deadline in deadlines if deadline is not None), default=None)

    def _now_ms(self) -> int:
        return int(self._clock.monotonic() * 1000)

    def _wait_ms(self, deadline_ms: int | None) -> int:
        return -1 if deadline_ms is None else max(0, deadline_ms - self._now_ms())

    def _watch_those_with_room(self, descriptors_left: bool) -> None:
        for fd, (listener, _) in self._sockets.items():
            watch = descriptors_left and fd not in self._waiting and self._limits.has_room(listener.name)
            if watch and fd not in self._watched:
                self._epoll.register(fd, select.EPOLLIN)
                self._watched.add(fd)
            elif not watch and fd in self._watched:
                self._epoll.unregister(fd)
                self._watched.discard(fd)
                self._paused.add()

    def _accept_from(self, listener: Listener, listening: socket.socket) -> bool:
        """Accept connections from the listen queue while the limits allow it, and serve them.

        Return False if the process has run out of file descriptors or memory, otherwise True.
        """
        for _ in range(_A_TURN):
            if not self._limits.has_room(listener.name):
                return True
            try:
                sock, address = listening.accept()
            except BlockingIOError:
                return True
            except OSError as error:
                if error.errno in _EXHAUSTED:
                    log.error("cannot accept connections for now: %s", error, extra=fields(listener=listener.name))
                    return False
                continue  # the peer closed this connection while it was in the listen queue
            peer = (str(address[0]).removeprefix("::ffff:"), int(address[1]))
            now_ms = self._now_ms()
            delay_ms = self._limits.rates.delay_ms(listener.name, now_ms)
            if delay_ms:
                self._delays[listener.name].delayed(delay_ms)
                self._waiting[listening.fileno()] = Waiting(sock, peer, now_ms + delay_ms)
                return True
            self._serve(listener, sock, peer, now_ms)
        return True

    def _serve(self, listener: Listener, sock: socket.socket, peer: tuple[str, int], now_ms: int) -> None:
        """Pass an accepted connection to a processor if the limits of its address allow it."""
        delay_ms = self._limits.rates.address_delay_ms(listener.name, peer[0], now_ms)
        if delay_ms:
            self._delays[listener.name].throttled(delay_ms)
            self._refused(listener, peer, "connection_creation_rate connections a second")
            self._throttled.add(sock, now_ms + delay_ms)
            return
        if not self._limits.admit(listener.name, peer[0]):
            self._rejected.add()
            self._refused(listener, peer, f"max.connections.per.ip connections: {self._limits.limit_of(peer[0])}")
            sock.close()
            return
        try:
            self._configure(sock)
        except OSError as error:  # the peer has reset the connection already
            log.debug("lost a connection while it was accepted: %s", error)
            self._limits.release(listener.name, peer[0])
            sock.close()
            return
        self._accepted.add()
        processor = self._processors[self._next_processor % len(self._processors)]
        self._next_processor += 1
        processor.adopt(sock, listener.name, peer)
        # The inter-broker listener may exceed max.connections: then a processor closes a connection of another
        # listener.
        if self._limits.exceeded:
            for processor in self._processors:
                processor.wake()

    def _refused(self, listener: Listener, peer: tuple[str, int], limit: str) -> None:
        left_out = self._lines.admit(peer[0])
        if left_out is not None:
            log.info(
                "refused a connection: its address has %s%s",
                limit,
                left_out,
                extra=fields(peer=host_port(*peer), listener=listener.name),
            )

    def _configure(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if self._settings.socket_send_buffer_bytes >= 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self._settings.socket_send_buffer_bytes)
