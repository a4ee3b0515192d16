"""The socket server: the listening sockets, one acceptor thread and the processors (network threads)."""

from __future__ import annotations

import itertools
import logging
import socket
import sys
import time
from collections.abc import Mapping, Sequence

from kafkapy.network import metrics
from kafkapy.network.acceptor import Acceptor
from kafkapy.network.cold import STEP
from kafkapy.network.drop_behind import PIECE, DropBehind
from kafkapy.network.limits import ConnectionLimits
from kafkapy.network.listeners import open_listener
from kafkapy.network.logins import LoginCounts
from kafkapy.network.outgoing import Opened
from kafkapy.network.processor import Processor
from kafkapy.network.replies import Handler
from kafkapy.network.request_memory import RequestMemory
from kafkapy.network.sends import PageCache, Residency
from kafkapy.network.settings import Listener, NetworkSettings
from kafkapy.network.transports import Prepare
from kafkapy.runtime.addresses import host_port
from kafkapy.runtime.clock import SYSTEM_CLOCK, Clock
from kafkapy.runtime.counters import Registry
from kafkapy.runtime.disk_pool import DiskPool
from kafkapy.runtime.logs import fields
from kafkapy.runtime.read_pools import ReadPools

log = logging.getLogger(__name__)

# How long a thread waits for the GIL before the thread that holds the GIL has to release it. Measured with 0.5 ms
# instead of Python's 5 ms: a tenth of the latency while another thread is busy, and nothing gets slower.
SWITCH_INTERVAL_S = 0.0005


class SocketServer:
    """Receives frames on all listeners, calls the handler for them, and sends the handler's replies.

    `prepare` maps the name of a listener that is not plain, such as one with TLS or SASL, to the function that prepares
    each of its new connections.

    Call `bind`, then `start`; at the end `stop_accepting` and `stop`, or only `stop`. Stop the thread pools after the
    server.
    """

    def __init__(
        self,
        listeners: Sequence[Listener],
        handler: Handler,
        settings: NetworkSettings,
        counters: Registry,
        disk_pool: DiskPool,
        read_pools: ReadPools,
        clock: Clock = SYSTEM_CLOCK,
        pages: Residency | None = None,
        prepare: Mapping[str, Prepare] | None = None,
    ) -> None:
        self._listeners = list(listeners)
        self._settings = settings
        self._counters = counters
        self.limits = ConnectionLimits(settings, self._listeners)
        self.limits.on_exceeded = self._wake_processors
        login_counts = LoginCounts(counters, clock)
        memory = None
        if settings.queued_max_request_bytes > 0:
            memory = RequestMemory(settings.queued_max_request_bytes, clock)
            memory.on_first_wait = self._wake_processors  # so that the processors look for slow senders
        # How far a reader may have read ahead of its position in DropBehind: the read-ahead, rounded up to a STEP, from
        # a position that is almost a PIECE and a turn further on.
        own = settings.read_ahead_bytes + STEP + 2 * PIECE
        self._behind = DropBehind(settings.read_ahead_max_bytes, own) if settings.drop_behind else None
        self._processors = [
            Processor(
                index,
                handler,
                settings,
                self.limits,
                disk_pool,
                read_pools,
                clock,
                pages or PageCache(),
                prepare or {},
                login_counts,
                memory,
                self._behind,
            )
            for index in range(settings.num_network_threads)
        ]
        self._next_opener = itertools.cycle(self._processors)
        self._sockets: list[tuple[Listener, socket.socket]] = []
        self._acceptor: Acceptor | None = None
        self._running: list[Processor] = []
        self._clock = clock
        metrics.register(counters, self._listeners, self.limits, self._processors, clock, memory, self._behind)

    def bind(self) -> dict[str, int]:
        """Open the sockets of all listeners, and return their ports by listener name.

        From now on clients can connect; they are served after `start`. Raises ListenError if a socket cannot be opened;
        the others are closed then.
        """
        try:
            for listener in self._listeners:
                others = [other for other in self._listeners if other != listener]
                self._sockets.append((listener, open_listener(listener, self._settings, others)))
        except BaseException:
            for _, sock in self._sockets:
                sock.close()
            self._sockets.clear()
            raise
        return {listener.name: sock.getsockname()[1] for listener, sock in self._sockets}

    def start(self) -> None:
        """Start the processors and the acceptor.

        Raises NoThread if a thread cannot be started; `stop` then ends the threads that were started.
        """
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        for processor in self._processors:
            processor.start()
            self._running.append(processor)
        self._acceptor = Acceptor(
            self._sockets, self._processors, self.limits, self._settings, self._counters, self._clock
        )
        self._acceptor.start()
        for listener, sock in self._sockets:
            log.info("listening", extra=fields(listener=listener.name, address=_shown(sock)))

    def open(
        self,
        address: tuple[str, int],
        handler: Handler,
        done: Opened,
        timeout_s: float,
        prepare: Prepare | None = None,
        receive_buffer: int = -1,
    ) -> None:
        """Connect to another server, on the next processor in turn. The arguments are those of `Processor.open`.

        Must not be called after `stop`.
        """
        next(self._next_opener).open(address, handler, done, timeout_s, prepare, receive_buffer)

    def stop_accepting(self) -> None:
        """Stop the acceptor and close the listening sockets. Open connections stay."""
        if self._acceptor is not None:
            self._acceptor.stop()
        for _, sock in self._sockets:
            sock.close()

    def stop(self) -> None:
        """Stop the server: close the listening sockets, finish the replies in progress, and close all connections.

        No more frames are handled. Replies that are not sent after `drain_s` seconds are lost.
        """
        self.stop_accepting()
        running, self._running = self._running, []
        if not running:
            return
        began = time.monotonic()
        for processor in running:
            processor.stop(self._settings.drain_s)
        for processor in running:
            processor.join()
        if self._behind is not None:
            self._behind.stop()
        log.info("the network has stopped", extra=fields(seconds=f"{time.monotonic() - began:.3f}"))

    def _wake_processors(self) -> None:
        """Wake the processors, so that they close connections above `max.connections`, or slow senders."""
        for processor in self._processors:
            processor.wake()

    @property
    def connections(self) -> int:
        """Return the number of open connections."""
        return self.limits.total


def _shown(sock: socket.socket) -> str:
    host, port = sock.getsockname()[:2]
    return host_port(host, port)
