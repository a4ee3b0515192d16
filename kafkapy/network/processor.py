"""A network thread, with its own epoll and its own connections.

A connection is registered once, edge-triggered, for all events. So there is no epoll_ctl call for each request, and no
wake-up for a connection that waits for something other than its socket. The price is that an event comes only once: a
connection has to be served until its socket is empty or full, or until it waits for another thread that will `post`.
"""

from __future__ import annotations

import heapq
import logging
import os
import select
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from kafkapy._ext import syscalls
from kafkapy.network.buffers import BufferPool
from kafkapy.network.cold import ColdReads
from kafkapy.network.connection import Connection
from kafkapy.network.idle import IdleConnections
from kafkapy.network.limits import ConnectionLimits
from kafkapy.network.pieces import PieceMaker
from kafkapy.network.receive import Receiver
from kafkapy.network.replies import Handler, Pending
from kafkapy.network.sends import Residency, Sender
from kafkapy.network.serving import Serving
from kafkapy.network.settings import NetworkSettings
from kafkapy.runtime.clock import Clock
from kafkapy.runtime.disk_pool import DiskPool
from kafkapy.runtime.read_pools import ReadPools
from kafkapy.runtime.threads import Thread

log = logging.getLogger(__name__)

_EVENTS = select.EPOLLIN | select.EPOLLOUT | select.EPOLLRDHUP | select.EPOLLET
_ENDED = select.EPOLLRDHUP | select.EPOLLHUP | select.EPOLLERR
_BROKEN = select.EPOLLHUP | select.EPOLLERR
_READABLE = select.EPOLLIN | _ENDED
_TRIM_S = 3.0
_PATIENT_TURNS = 4
_MOST_TOGETHER = 64  # connections whose requests one call of `end_turn` handles
_MESSAGES_A_TURN = 16


# Makes the receiver and the sender of one connection. Receive buffers come from the processor's pool.
Transport = Callable[[BufferPool], tuple[Receiver, Sender]]


class Processor:
    """One network thread and its connections.

    `start`, `stop`, `join`, `adopt`, `wake` and the `post` methods may be called from any thread. Everything else runs
    on the processor's own thread.
    """

    def __init__(
        self,
        index: int,
        handler: Handler,
        settings: NetworkSettings,
        limits: ConnectionLimits,
        disk_pool: DiskPool,
        read_pools: ReadPools,
        clock: Clock,
        pages: Residency,
        transports: Mapping[str, Transport],
    ) -> None:
        self.index = index
        self._limits = limits
        self._clock = clock
        self._pool = BufferPool(settings.buffer_pool_bytes)
        self._receiver = Receiver(self._pool, settings.max_frames_a_turn, settings.socket_request_max_bytes)
        self._sender = Sender(settings.zero_copy, settings.copy_below, pages)
        window_of_all = settings.read_ahead_max_bytes // settings.num_network_threads
        self._cold = ColdReads(read_pools, self.post, settings.read_ahead_bytes, window_of_all)
        maker = PieceMaker(disk_pool, read_pools)
        self._handler = handler
        self._transports = transports
        self._serving = Serving(self, handler, self._cold, maker, pages)
        self._idle = IdleConnections(settings.connections_max_idle_ms / 1000)
        self._epoll = select.epoll()
        self._event = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._woken = False
        self._messages: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()
        self._connections: dict[int, Connection] = {}  # by descriptor
        self._ready: deque[Connection] = deque()
        self._patient: deque[Connection] = deque()
        # For the handler. `together` is whether more than one connection is served in this iteration of the loop;
        # `gathered` holds what the handler keeps of their requests until all of them were read.
        self.together = False
        self.gathered: list[tuple[Connection, Any]] = []
        self._muted: list[tuple[float, int, Connection]] = []  # a heap by the time at which the mute ends
        self._now = clock.monotonic()
        self._next_trim = 0.0
        self._opened = 0
        self._drain_until: float | None = None
        self._thread = Thread(self._run, f"kafkapy-network-{index}")
        self._thread_id = 0
        self.turns = 0
        self.sleeping_s = 0.0
        self.closed_idle = 0
        clock.subscribe(self.wake)

    # For any thread

    def start(self) -> None:
        self._epoll.register(self._event, select.EPOLLIN)
        self._thread.start()

    def adopt(self, sock: socket.socket, listener: str, peer: tuple[str, int]) -> None:
        """Take over an accepted, non-blocking socket that the limits have admitted."""
        self.post(self._add_connection, sock, listener, peer)

    def post(self, fn: Callable[..., None], *args: Any) -> None:
        """Call `fn(*args)` on the processor's thread, after all calls that were posted before."""
        self._messages.append((fn, args))
        self.wake()

    def post_completion(self, conn: Connection, pending: Pending) -> None:
        self._messages.append((self._serving.complete, (conn, pending)))
        self.wake()

    def post_frame_unused(self, conn: Connection, pending: Pending) -> None:
        self._messages.append((self._serving.frame_unused, (conn, pending)))
        self.wake()

    def wake(self) -> None:
        # The flag saves a system call if another thread has just woken the processor. No message is missed: a sender
        # appends its message, then reads the flag. If the flag is set, the processor has not cleared it yet, and the
        # processor reads the messages only after it has cleared the flag.
        if not self._woken and threading.get_ident() != self._thread_id:
            self._woken = True
            syscalls.event_set(self._event)

    def stop(self, drain_s: float) -> None:
        """Have the thread receive no more requests, and end when all replies are sent or after `drain_s` seconds."""
        self.post(self._begin_drain, time.monotonic() + drain_s)

    def join(self) -> None:
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join()

    def __del__(self) -> None:
        os.close(self._event)  # not earlier: other threads may complete requests, and so set it, after the thread's end

    @property
    def now(self) -> float:
        """Return the monotonic time at which this iteration of the loop got its events.

        A frame that is handled now has been waiting since then.
        """
        return self._now

    @property
    def frames_in(self) -> int:
        return self._serving.frames_in

    @property
    def bytes_in(self) -> int:
        return self._receiver.bytes_in

    @property
    def bytes_out(self) -> int:
        return self._sender.bytes_out

    @property
    def cold_reads(self) -> int:
        return self._cold.count

    @property
    def reads_ahead(self) -> int:
        return self._cold.ahead

    @property
    def pool(self) -> BufferPool:
        return self._pool

    def __len__(self) -> int:
        """Return the number of open connections."""
        return len(self._connections)

    # The loop

    def _run(self) -> None:
        self._thread_id = threading.get_ident()
        while not self._drained():
            try:
                self._poll()
                self._process_messages()
                self._serve_ready()
                self._unmute()
                self._close_excess()
                self._close_idle()
                self._trim_buffers()
            except Exception:
                log.exception("network thread %d: an iteration of its loop failed", self.index)
        self._close_all()

    def _poll(self) -> None:
        """Get the epoll events and queue their connections. Waits for events only if there is nothing else to do."""
        epoll = self._epoll.fileno()
        events = syscalls.epoll_wait(epoll, 0)
        self._now = self._clock.monotonic()
        if not events and not self._ready and not self._patient and not self._messages:
            events = syscalls.epoll_wait(epoll, self._timeout_ms())
            before, self._now = self._now, self._clock.monotonic()
            self.sleeping_s += self._now - before
        self.turns += 1
        for fd, flags in events:
            conn = self._connections.get(fd)
            if conn is None:
                syscalls.event_clear(self._event)
                self._woken = False
                continue
            if flags & _READABLE:
                conn.readable = True
                if flags & _ENDED:
                    conn.gone = True
                    conn.broken = conn.broken or flags & _BROKEN != 0
            self.queue(conn)

    def _timeout_ms(self) -> int:
        waits = [self._idle.due_in(self._now)]
        if self._muted:
            waits.append(max(0.0, self._muted[0][0] - self._now))
        if self._pool.free_bytes:
            waits.append(_TRIM_S)
        if self._drain_until is not None:
            waits.append(max(0.001, self._drain_until - time.monotonic()))
        wait = min(waits)
        return -1 if wait == float("inf") else int(wait * 1000) + 1

    def _process_messages(self) -> None:
        """Process the first posted messages.

        Not all of them: a thousand replies that are ready at the same time must not delay the requests that arrive
        meanwhile.
        """
        for _ in range(min(len(self._messages), _MESSAGES_A_TURN)):
            fn, args = self._messages.popleft()
            fn(*args)

    def _serve_ready(self) -> None:
        """Serve each connection once that was ready at the start of the call; those with more to do are queued again.

        Only a few patient connections are served, about 30 µs each, so that the next poll comes soon.
        """
        self.together = len(self._ready) > 1
        for _ in range(len(self._ready)):
            self._serve(self._ready.popleft())
            if len(self.gathered) >= _MOST_TOGETHER:
                self._serving.answer_gathered()
        if self.gathered:
            self._serving.answer_gathered()
        self.together = False
        for _ in range(min(len(self._patient), _PATIENT_TURNS)):
            self._serve(self._patient.popleft())

    def _serve(self, conn: Connection) -> None:
        conn.queued = False
        if not conn.closed:
            conn.last_active = self._now
            self._serving.serve(conn)

    # Connections

    @property
    def draining(self) -> bool:
        """Return whether the processor is stopping: then it receives no more requests."""
        return self._drain_until is not None

    def queue(self, conn: Connection) -> None:
        """Have the connection served, in this iteration of the loop or the next."""
        if not conn.queued:
            conn.queued = True
            (self._patient if conn.patient else self._ready).append(conn)

    def _add_connection(self, sock: socket.socket, listener: str, peer: tuple[str, int]) -> None:
        if self._drain_until is not None:
            self._limits.release(listener, peer[0])
            sock.close()
            return
        self._opened += 1
        receiver, sender, transport = self._receiver, self._sender, self._transports.get(listener)
        if transport is not None:
            receiver, sender = transport(self._pool)
        conn = Connection(self._opened, sock, listener, peer, self, self._now, receiver, sender, self._handler)
        self._connections[conn.fd] = conn
        self._idle.add(conn)
        try:
            self._epoll.register(conn.fd, _EVENTS)
        except OSError as error:
            log.error("cannot watch a connection: %s", error, extra=conn.who)
            self.close(conn)

    def close(self, conn: Connection) -> None:
        if conn.closed:
            return
        conn.closed = True
        del self._connections[conn.fd]
        conn.sock.close()
        conn.outbox.clear()
        self._serving.forget_reader(conn)
        conn.receiver.release(conn)
        self._limits.release(conn.listener, conn.peer[0])
        pending, conn.pending = conn.pending, None
        calls = [conn.on_close]
        conn.on_close = None  # most callbacks refer to the connection, which would be a reference cycle
        if pending is not None:
            pending.cancelled = True
            calls.append(pending.on_cancel)
            pending.on_cancel = None
        for call in calls:
            if call is not None:
                try:
                    call()
                except Exception:
                    log.exception("a callback for a closed connection failed", extra=conn.who)

    def mute(self, conn: Connection, until: float) -> None:
        """Receive nothing from the connection until the monotonic time `until`. Its replies are still sent."""
        if until > conn.muted_until:
            conn.muted_until = until
            heapq.heappush(self._muted, (until, conn.id, conn))

    def _unmute(self) -> None:
        while self._muted and self._muted[0][0] <= self._now:
            until, _, conn = heapq.heappop(self._muted)
            if until == conn.muted_until and not conn.closed:  # otherwise it was muted again, for longer
                conn.muted_until = 0.0
                self.queue(conn)

    def _close_excess(self) -> None:
        while self._limits.exceeded():
            others = [conn for conn in self._connections.values() if not self._limits.is_protected(conn.listener)]
            if not others:
                return
            idlest = min(others, key=lambda conn: conn.last_active)
            log.info("closed the connection that was idle longest: max.connections", extra=idlest.who)
            self.close(idlest)

    def _close_idle(self) -> None:
        for conn in self._idle.expired(self._now):
            log.debug("closed an idle connection", extra=conn.who)
            self.closed_idle += 1
            self.close(conn)

    def _trim_buffers(self) -> None:
        if self._now >= self._next_trim:
            self._next_trim = self._now + _TRIM_S
            self._pool.trim()

    def _begin_drain(self, until: float) -> None:
        self._drain_until = until
        for conn in self._connections.values():
            self.queue(conn)

    def _drained(self) -> bool:
        return (
            self._drain_until is not None
            and (not self._connections or time.monotonic() >= self._drain_until)
            and not self._messages
        )

    def _close_all(self) -> None:
        if self._connections:
            log.warning("closed %d connections whose replies were not ready in time", len(self._connections))
        for conn in list(self._connections.values()):
            self.close(conn)
        self._epoll.close()
