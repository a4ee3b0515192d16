"""The acceptor: accepts connections within the limits and distributes them round-robin over the processors."""

from __future__ import annotations

import errno
import logging
import os
import select
import socket
from collections.abc import Sequence

from kafkapy._ext import syscalls
from kafkapy.network.limits import ConnectionLimits
from kafkapy.network.metrics import METRICS
from kafkapy.network.processor import Processor
from kafkapy.network.settings import Listener, NetworkSettings
from kafkapy.runtime.counters import Counter, Registry
from kafkapy.runtime.logs import fields
from kafkapy.runtime.threads import Thread

log = logging.getLogger(__name__)

_A_TURN = 64
_EXHAUSTED = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
_PAUSE_MS = 200


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
        self._thread = Thread(self._run, "kafkapy-acceptor")
        self._accepted = counters.register(METRICS["network_connections_accepted"], Counter())
        self._rejected = counters.register(METRICS["network_connections_rejected"], Counter())
        self._paused = counters.register(METRICS["network_acceptor_pauses"], Counter())

    def start(self) -> None:
        self._epoll.register(self._event, select.EPOLLIN)
        self._limits.on_release = self.wake
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
        self._epoll.close()
        # The eventfd stays open until __del__: a thread that releases a connection may have found `_stopping` False in
        # `wake`, and sets the eventfd after this. If it were closed by then, its number could be another file's.

    def __del__(self) -> None:
        os.close(self._event)

    def _run(self) -> None:
        exhausted = False
        while not self._stopping:
            try:
                self._watch_those_with_room(not exhausted)
                ready = syscalls.epoll_wait(self._epoll.fileno(), _PAUSE_MS if exhausted else -1)
                exhausted = False
                syscalls.event_clear(self._event)
                for fd, _ in ready:
                    if fd in self._sockets and not self._stopping:
                        exhausted |= not self._accept_from(*self._sockets[fd])
            except Exception:
                log.exception("an iteration of the acceptor's loop failed")
                exhausted = True

    def _watch_those_with_room(self, descriptors_left: bool) -> None:
        for fd, (listener, _) in self._sockets.items():
            watch = descriptors_left and self._limits.has_room(listener.name)
            if watch and fd not in self._watched:
                self._epoll.register(fd, select.EPOLLIN)
                self._watched.add(fd)
            elif not watch and fd in self._watched:
                self._epoll.unregister(fd)
                self._watched.discard(fd)
                self._paused.add()

    def _accept_from(self, listener: Listener, listening: socket.socket) -> bool:
        """Accept connections from the listen queue while the limits allow it, and pass them to the processors.

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
            if not self._limits.admit(listener.name, peer[0]):
                self._rejected.add()
                log.info(
                    "refused a connection: its address has max.connections.per.ip connections",
                    extra=fields(peer=f"{peer[0]}:{peer[1]}", limit=self._limits.limit_of(peer[0])),
                )
                sock.close()
                continue
            try:
                self._configure(sock)
            except OSError as error:  # the peer has reset the connection already
                log.debug("lost a connection while it was accepted: %s", error)
                self._limits.release(listener.name, peer[0])
                sock.close()
                continue
            self._accepted.add()
            processor = self._processors[self._next_processor % len(self._processors)]
            self._next_processor += 1
            processor.adopt(sock, listener.name, peer)
            # The inter-broker listener may exceed max.connections: then a processor closes a connection of another
            # listener.
            if self._limits.exceeded:
                for processor in self._processors:
                    processor.wake()
        return True

    def _configure(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if self._settings.socket_send_buffer_bytes >= 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self._settings.socket_send_buffer_bytes)
