"""A processor: a network thread with its own epoll instance and its own connections.

A connection is registered with epoll once, edge-triggered, for all events. So there is no epoll_ctl call for each
request, and no wake-up for a connection that waits for something other than its socket. The price is that an event
comes only once: a connection has to be served until its socket is empty or full, or until it waits for another thread,
which will call `post`.
"""

from __future__ import annotations

import errno
import heapq
import itertools
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
from kafkapy.network.drop_behind import DropBehind
from kafkapy.network.idle import IdleConnections
from kafkapy.network.limits import ConnectionLimits
from kafkapy.network.logins import LoginCounts, Logins
from kafkapy.network.outgoing import Opened, Opening, Openings
from kafkapy.network.pieces import PieceMaker
from kafkapy.network.receive import Receiver
from kafkapy.network.replies import Handler, Pending, Send, Timed
from kafkapy.network.request_memory import RequestMemory
from kafkapy.network.sends import Residency, Sender
from kafkapy.network.serving import Serving
from kafkapy.network.settings import NetworkSettings
from kafkapy.network.transports import Prepare, TransportSender
from kafkapy.runtime.clock import Clock
from kafkapy.runtime.disk_pool import DiskPool
from kafkapy.runtime.line_limit import LineLimit
from kafkapy.runtime.read_pools import ReadPools
from kafkapy.runtime.threads import Thread

log = logging.getLogger(__name__)

_EVENTS = select.EPOLLIN | select.EPOLLOUT | select.EPOLLRDHUP | select.EPOLLET
_ENDED = select.EPOLLRDHUP | select.EPOLLHUP | select.EPOLLERR
_BROKEN = select.EPOLLHUP | select.EPOLLERR
_READABLE = select.EPOLLIN | _ENDED
_UPKEEP_S = 1.0  # how often idle connections and unused buffers are looked for
_TRIM_S = 3.0
_LONGEST_POLL_MS = 2**31 - 1  # that epoll_wait takes
# While connections wait for memory, a connection that has reserved memory must send at least _SLOWEST bytes a second on
# average, not counting the first _SLOW_AFTER_S seconds.
_SLOW_AFTER_S = 10.0
_SLOWEST = 64 << 10
_PATIENT_TURNS = 4
_MOST_TOGETHER = 64  # connections whose requests one call of `end_turn` handles
_MESSAGES_A_TURN = 16
_UNNEEDED_TIMERS = 100  # unneeded timers are removed if they are more than this plus half of all timers
_MAX_INT32 = 2**31 - 1
_CONNECTION_IDS = itertools.count(1)  # of all processors, so that a later connection has a higher id


class Processor:
    """One network thread and its connections.

    `start`, `stop`, `join`, `adopt`, `open`, `wake`, `call`, `complete_now` and the `post` methods may be called from
    any thread. Everything else runs on the processor's own thread.
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
        prepare: Mapping[str, Prepare],
        login_counts: LoginCounts,
        memory: RequestMemory | None = None,
        behind: DropBehind | None = None,
    ) -> None:
        self.index = index
        self._limits = limits
        self._clock = clock
        self._pool = BufferPool(settings.buffer_pool_bytes)
        self._memory = memory
        self._receiver = Receiver(self._pool, settings.max_frames_a_turn, memory)
        self._largest_frame = settings.socket_request_max_bytes
        self.sender = Sender(settings.zero_copy, settings.copy_below, pages)
        window_of_all = settings.read_ahead_max_bytes // settings.num_network_threads
        self._cold = ColdReads(read_pools, self.post, settings.read_ahead_bytes, window_of_all, behind)
        maker = PieceMaker(disk_pool, read_pools)
        self._handler = handler
        self._prepare = prepare
        self._serving = Serving(self, handler, self._receiver, self._cold, maker, pages)
        self._idle = IdleConnections(settings.connections_max_idle_ms / 1000)
        self.logins = Logins(
            self,
            login_counts,
            settings.authentication_timeout_ms / 1000,
            max(1, settings.max_connections_authenticating // settings.num_network_threads),
        )
        self.lines = LineLimit(clock)  # of log lines about peers that violate the protocol
        self._openings = Openings(self)
        self._epoll = select.epoll()
        self._epoll_fd = self._epoll.fileno()
        self._event = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._woken = False
        self._messages: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()
        self._left_now = 0  # how many replies `complete_now` may still send at once in this iteration of the loop
        self._connections: dict[int, Connection] = {}  # by descriptor
        self._ready: deque[Connection] = deque()
        self._patient: deque[Connection] = deque()
        # For the handler. `together` is whether more than one connection is served in this iteration of the loop;
        # `gathered` holds what the handler keeps of their requests until all of them were read.
        self.together = False
        self.gathered: list[tuple[Connection, Any]] = []
        self._timers: list[tuple[float, int, Callable[..., object], tuple[Any, ...]]] = []  # a heap by time
        self._timer_numbers = itertools.count()  # the order of timers of the same time
        self._muted: dict[int, Connection] = {}  # by id
        self._unneeded_timers = 0  # an upper bound of the timers that would end the mute of a closed connection
        # The monotonic time at which this iteration of the loop got its epoll events. A frame that is handled in this
        # iteration has been waiting since that time.
        self.now = clock.monotonic()
        self._next_upkeep = 0.0
        self._next_trim = 0.0
        self.draining = False  # the processor is stopping: it receives no more requests
        self._drain_until = 0.0
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
        """Serve an accepted, non-blocking socket as a connection of `listener`; the limits have admitted it."""
        self.post(self._add_connection, sock, listener, peer)

    def open(
        self,
        address: tuple[str, int],
        handler: Handler,
        done: Opened,
        timeout_s: float,
        prepare: Prepare | None = None,
        receive_buffer: int = -1,
    ) -> None:
        """Connect to `address`, an IP address and a port, and call `done(connection, None)` on the processor's thread.

        If connecting fails or takes longer than `timeout_s` seconds, or the processor is stopping, the call is
        `done(None, error)`. The caller sends requests by `send`. For each response, `handler` returns one reply, which
        is sent as the next request: NO_REPLY sends no request, and CLOSE closes the connection at once. When the
        connection closes, its `on_close` is called. The connection counts for no limit, is never closed for being idle,
        and may receive frames of any size.
        """
        self.post(self._open, Opening(address, handler, done, timeout_s, prepare, receive_buffer))

    def post_ready(self, conn: Connection) -> None:
        """Have the connection served as if its socket had become readable and writable.

        A transport calls this when its work on another thread is done.
        """
        self.post(self._became_ready, conn)

    def call(self, fn: Callable[..., None], *args: Any) -> None:
        """Call `fn(*args)` on the processor's thread: now if this is that thread, otherwise as `post`."""
        if threading.get_ident() == self._thread_id:
            fn(*args)
        else:
            self.post(fn, *args)

    def post(self, fn: Callable[..., None], *args: Any) -> None:
        """Call `fn(*args)` on the processor's thread, after all calls that were posted before."""
        self._messages.append((fn, args))
        self.wake()

    def post_completion(self, conn: Connection, pending: Pending) -> None:
        self._messages.append((self._serving.complete, (conn, pending)))
        self.wake()

    def complete_now(self, conn: Connection, pending: Pending) -> None:
        """Send the reply of a completed Pending: now if this is the processor's thread, otherwise as `post_completion`.

        The reply is also posted if _MESSAGES_A_TURN replies were sent so in this iteration of the loop, or if the
        handler has not returned the Pending yet.
        """
        if self._left_now and conn.pending is pending and threading.get_ident() == self._thread_id:
            self._left_now -= 1
            self._serving.complete(conn, pending)
        else:
            self.post_completion(conn, pending)

    def post_frame_unused(self, conn: Connection, pending: Pending) -> None:
        self._messages.append((self._serving.frame_unused, (conn, pending)))
        self.wake()

    def post_granted(self, conn: Connection, size: int) -> None:
        self._messages.append((self._serving.granted, (conn, size)))
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
        os.close(self._event)  # not earlier: other threads may complete requests, and so set it, after this thread ends

    @property
    def frames_in(self) -> int:
        return self._serving.frames_in

    @property
    def bytes_in(self) -> int:
        return self._receiver.bytes_in

    @property
    def bytes_out(self) -> int:
        return self.sender.bytes_out

    @property
    def authenticating(self) -> int:
        return len(self.logins)

    @property
    def muted(self) -> int:
        return len(self._muted)

    @property
    def cold_reads(self) -> int:
        return self._cold.count

    @property
    def disk_read_bytes(self) -> int:
        return self._cold.bytes

    @property
    def reads_ahead(self) -> int:
        return self._cold.ahead

    @property
    def shared_reads(self) -> int:
        return self._cold.shared

    @property
    def pool(self) -> BufferPool:
        return self._pool

    def __len__(self) -> int:
        """Return the number of open connections."""
        return len(self._connections)

    # The loop

    def _run(self) -> None:
        self._thread_id = threading.get_ident()
        while not (self.draining and self._drained()):
            try:
                self._poll()
                self._serve_ready()
                if self._messages:
                    self._process_messages()
                if self._patient:
                    self._serve_patient()
                if self._timers:
                    self._run_timers()
                if self._limits.exceeded:
                    self._close_excess()
                if self.now >= self._next_upkeep:
                    self._next_upkeep = self.now + _UPKEEP_S
                    self._close_idle()
                    self._trim()
                    if self._memory is not None and self._memory.has_waiting:
                        self._close_slow_senders()
            except Exception:
                log.exception("network thread %d: an iteration of its loop failed", self.index)
        self._close_all()

    def _poll(self) -> None:
        """Read the epoll events, and queue each connection that has an event to be served.

        Waits for events only if no connection is queued and no message was posted.
        """
        events = syscalls.epoll_wait(self._epoll_fd, 0)
        self.now = self._clock.monotonic()
        if not events and not self._ready and not self._patient and not self._messages:
            events = syscalls.epoll_wait(self._epoll_fd, self._timeout_ms())
            before, self.now = self.now, self._clock.monotonic()
            self.sleeping_s += self.now - before
        self.turns += 1
        self._left_now = _MESSAGES_A_TURN
        for fd, flags in events:
            conn = self._connections.get(fd)
            if conn is None:
                if fd == self._event:
                    syscalls.event_clear(fd)
                    self._woken = False
                else:
                    self._openings.event(fd, flags)
                continue
            if flags & _READABLE:
                conn.readable = True
                if flags & _ENDED:
                    conn.gone = True
                    conn.broken = conn.broken or flags & _BROKEN != 0
            self.queue(conn)

    def _timeout_ms(self) -> int:
        waits = [self._idle.due_in(self.now)]
        if self._timers:
            waits.append(max(0.0, self._timers[0][0] - self.now))
        if self._pool.free_bytes or self._cold.on_trim:
            waits.append(_TRIM_S)
        if self._memory is not None and self._memory.has_waiting:
            waits.append(_UPKEEP_S)
        if self.draining:
            waits.append(max(0.001, self._drain_until - time.monotonic()))
        wait = min(waits)
        return -1 if wait == float("inf") else min(int(wait * 1000) + 1, _LONGEST_POLL_MS)

    def _process_messages(self) -> None:
        """Run the calls that were posted first, at most _MESSAGES_A_TURN of them.

        They come after the requests of this turn, whose handlers have posted most of them: records that were appended
        are sent to followers without another poll. There is a limit because a thousand replies that are ready at the
        same time must not delay the requests that arrive meanwhile.
        """
        for _ in range(min(len(self._messages), _MESSAGES_A_TURN)):
            fn, args = self._messages.popleft()
            fn(*args)

    def _serve_ready(self) -> None:
        """Serve each connection once that was queued at the start of the call.

        Connections with more to do are queued again. The requests that the handler gathers from several connections are
        answered together.
        """
        self.together = len(self._ready) > 1
        for _ in range(len(self._ready)):
            self._serving.serve(self._ready.popleft())
            if len(self.gathered) >= _MOST_TOGETHER:
                self._serving.answer_gathered()
        if self.gathered:
            self._serving.answer_gathered()
        self.together = False

    def _serve_patient(self) -> None:
        """Serve some of the patient connections (see Connection).

        At most _PATIENT_TURNS are served, about 30 µs each, so that the next poll comes soon.
        """
        for _ in range(min(len(self._patient), _PATIENT_TURNS)):
            self._serving.serve(self._patient.popleft())

    # Connections

    def queue(self, conn: Connection) -> None:
        """Queue the connection to be served in this iteration of the loop or the next, unless it is queued already."""
        if not conn.queued:
            conn.queued = True
            (self._patient if conn.patient else self._ready).append(conn)

    def _add_connection(self, sock: socket.socket, listener: str, peer: tuple[str, int]) -> None:
        if self.draining:
            self._limits.release(listener, peer[0])
            sock.close()
            return
        conn = self._connection(sock, listener, peer, self._handler, self._largest_frame)
        self._idle.add(conn)
        try:
            self._prepare_connection(conn, self._prepare.get(listener))
            self.watch(sock)
        except Exception as error:
            log.error("cannot serve a connection: %s", error, extra=conn.who)
            self.close(conn)

    def _connection(
        self,
        sock: socket.socket,
        listener: str,
        peer: tuple[str, int],
        handler: Handler,
        largest_frame: int,
        outgoing: bool = False,
    ) -> Connection:
        conn = Connection(
            next(_CONNECTION_IDS),
            sock,
            listener,
            peer,
            self,
            self.now,
            self.sender,
            handler,
            largest_frame,
            outgoing=outgoing,
        )
        self._connections[conn.fd] = conn
        return conn

    def _prepare_connection(self, conn: Connection, prepare: Prepare | None) -> None:
        transport = prepare(conn) if prepare is not None else None
        if transport is not None:
            conn.set_transport(transport, TransportSender(conn, transport, self.sender))

    def _became_ready(self, conn: Connection) -> None:
        if not conn.closed:
            conn.readable = True
            self.queue(conn)

    def watch(self, sock: socket.socket) -> None:
        """Register the socket with epoll, for all events."""
        self._epoll.register(sock.fileno(), _EVENTS)

    def _open(self, one: Opening) -> None:
        if self.draining:
            one.finish(None, OSError(errno.ECANCELED, "the network is stopping"))
        else:
            self._openings.begin(one)

    def add_opened(self, one: Opening, sock: socket.socket) -> None:
        """Make a connection of the socket that the opening `one` has connected, and pass the connection to `one.done`.

        The socket is registered with epoll already. If `one.prepare` raises, the connection is closed, and `one.done`
        gets the error.
        """
        conn = self._connection(sock, "", one.address, one.handler, _MAX_INT32, outgoing=True)
        conn.gone = one.flags & _ENDED != 0
        try:
            self._prepare_connection(conn, one.prepare)
        except Exception as error:
            self.close(conn)
            one.finish(None, error)
            return
        one.finish(conn, None)
        self.queue(conn)  # bytes may have arrived, and their epoll event may be over

    def send(self, conn: Connection, request: Send | Timed, *, by_handler: bool = False) -> None:
        """Send a request on a connection that `open` has opened, after its earlier requests.

        Does nothing if the connection is closed. With `by_handler`, the caller is the connection's handler, in a call
        for a response; the request is sent when that call returns.
        """
        if not conn.closed:
            self._serving.answer(conn, request)
            if not by_handler:
                self.queue(conn)

    def close(self, conn: Connection) -> None:
        if conn.closed:
            return
        conn.closed = True
        del self._connections[conn.fd]
        if self._muted.pop(conn.id, None) is not None:
            self._unneeded_timers += 1
        if conn.login is not None:
            self.logins.closed(conn)
        if conn.transport is not None:
            try:
                conn.transport.close(can_send=not conn.broken)
            except Exception as error:
                log.debug("the end of a connection's stream was not sent: %s", error, extra=conn.who)
            conn.drop_transport(self.sender)
        conn.sock.close()
        conn.outbox.clear()
        self._serving.forget_reader(conn)
        self._receiver.release(conn)
        if not conn.outgoing:
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
        if until > conn.muted_until and not conn.closed:
            conn.muted_until = until
            self._muted[conn.id] = conn
            # The timer gets the id: it cannot be cancelled, and must not keep a closed connection in memory.
            self.call_at(until, self._unmute, conn.id, until)
            if self._unneeded_timers > _UNNEEDED_TIMERS + len(self._timers) // 2:
                self._remove_unneeded_timers()

    def _unmute(self, id: int, until: float) -> None:
        conn = self._muted.get(id)
        if conn is not None and until == conn.muted_until:  # otherwise it was muted again, for longer
            conn.muted_until = 0.0
            del self._muted[id]
            self.queue(conn)

    def _remove_unneeded_timers(self) -> None:
        """Remove the timers that end the mutes of closed connections: a throttle time may be days, and a client may
        connect again and again."""
        unmute = self._unmute
        self._timers = [one for one in self._timers if one[2] != unmute or one[3][0] in self._muted]
        heapq.heapify(self._timers)
        self._unneeded_timers = 0

    def call_at(self, when: float, fn: Callable[..., object], *args: Any) -> None:
        """Call `fn(*args)` at the monotonic time `when`, or soon after. There is no way to cancel the call."""
        heapq.heappush(self._timers, (when, next(self._timer_numbers), fn, args))

    def _run_timers(self) -> None:
        while self._timers and self._timers[0][0] <= self.now:
            _, _, fn, args = heapq.heappop(self._timers)
            fn(*args)

    def _close_excess(self) -> None:
        while self._limits.exceeded:
            others = [
                conn
                for conn in self._connections.values()
                if not conn.outgoing and not self._limits.is_protected(conn.listener)
            ]
            if not others:
                return
            idlest = min(others, key=lambda conn: conn.last_active)
            log.info("closed the connection that was idle longest: max.connections", extra=idlest.who)
            self.close(idlest)

    def _close_idle(self) -> None:
        for conn in self._idle.expired(self.now):
            log.debug("closed an idle connection", extra=conn.who)
            self.closed_idle += 1
            self.close(conn)

    def _close_slow_senders(self) -> None:
        """Close the connections that send large requests slowly while other connections wait for memory.

        Otherwise a peer could announce a large request, send nothing of it, and so stop all other large requests.
        """
        assert self._memory is not None
        for conn in list(self._connections.values()):
            if not self._memory.has_waiting:
                return
            if conn.big is None or not conn.big.reserved or conn.muted_until:
                continue
            seconds = self.now - conn.big_began
            if conn.big_end < (seconds - _SLOW_AFTER_S) * _SLOWEST:
                log.warning(
                    "closed a connection: it has sent %d of the %d bytes of a request in %d s, and other connections "
                    "wait for memory (queued.max.request.bytes)",
                    conn.big_end, conn.big_needed, seconds, extra=conn.who,
                )  # fmt: skip
                self.close(conn)

    def _trim(self) -> None:
        if self.now >= self._next_trim:
            self._next_trim = self.now + _TRIM_S
            self._cold.trim()
            self._pool.trim()

    def _begin_drain(self, until: float) -> None:
        self.draining = True
        self._drain_until = until
        self._openings.give_up_all(OSError(errno.ECANCELED, "the network is stopping"))
        for conn in self._connections.values():
            self.queue(conn)

    def _drained(self) -> bool:
        return (not self._connections or time.monotonic() >= self._drain_until) and not self._messages

    def _close_all(self) -> None:
        if self._connections:
            log.warning("closed %d connections whose replies were not ready in time", len(self._connections))
        for conn in list(self._connections.values()):
            self.close(conn)
        self._epoll.close()
