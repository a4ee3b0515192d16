"""Many clients that connect at once with TLS and log in by SCRAM, as a process of low priority.

    python -m perf.tls_load PORT CA COUNT

It computes the salted password with a first login, lets COUNT clients connect at the same time, prints the seconds
until all have a response to their first request, and keeps the connections open until it is ended.
"""

from __future__ import annotations

import resource
import select
import signal
import socket
import ssl
import sys
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kafkapy.protocol.apis import API_VERSIONS, SASL_AUTHENTICATE, SASL_HANDSHAKE
from kafkapy.protocol.headers import read_response_header, request_frame
from kafkapy.security.sasl.scram_client import ScramClient
from perf import frames
from perf.processes import Child
from perf.raw_client import TIMEOUT
from perf.tls import MECHANISM, PASSWORD, USER, TlsClient

VERSIONS = {SASL_HANDSHAKE: 1, SASL_AUTHENTICATE: 2, API_VERSIONS: 0}
LOWEST = "19"

Steps = Generator[None, None, None]


@contextmanager
def load(port: int, ca_file: Path, count: int, directory: Path) -> Iterator[float]:
    """Let `count` clients connect; yield the seconds that this took, and keep them connected in the block."""
    command = ["nice", "-n", LOWEST, sys.executable, "-m", "perf.tls_load", str(port), str(ca_file), str(count)]
    child = Child(command, directory / "tls-load.out", keep_stdout=True)
    try:
        yield float(child.first_line("the clients could not connect"))
    finally:
        child.stop()


class _Client:
    """One client. Continue `steps` whenever the socket has more bytes; it ends when the client was served."""

    def __init__(self, port: int, context: ssl.SSLContext) -> None:
        self.socket = socket.socket()
        self.socket.setblocking(False)
        self.socket.connect_ex(("127.0.0.1", port))
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname="localhost")
        self._received = b""
        self.steps = self._steps()

    def receive(self) -> None:
        """Receive the bytes that have arrived. One call is enough, because the messages of a login are short."""
        try:
            data = self.socket.recv(1 << 16)
        except BlockingIOError:
            return
        if not data:
            raise ConnectionError("the broker closed the connection of a client")
        self._incoming.write(data)

    def _steps(self) -> Steps:
        while True:
            try:
                self._tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                self._send()
                yield
        mechanism = ScramClient(MECHANISM, USER, PASSWORD)
        yield from self._ask(SASL_HANDSHAKE, SASL_HANDSHAKE.Request(mechanism=MECHANISM))
        token: bytes | None = mechanism.initial()
        while token is not None:
            answer = yield from self._ask(SASL_AUTHENTICATE, SASL_AUTHENTICATE.Request(auth_bytes=token))
            if answer.error_code:
                raise RuntimeError(f"a login failed: {answer.error_message}")
            token = mechanism.respond(answer.auth_bytes)
        yield from self._ask(API_VERSIONS, API_VERSIONS.Request())

    def _ask(self, api: Any, request: Any) -> Generator[None, None, Any]:
        self._tls.write(request_frame(api, VERSIONS[api], 1, frames.CLIENT, request))
        self._send()
        while len(self._received) < 4 or len(self._received) < 4 + int.from_bytes(self._received[:4], "big"):
            try:
                self._received += self._tls.read(1 << 16)
            except ssl.SSLWantReadError:
                yield
        frame, self._received = self._received[4:], b""
        _, body = read_response_header(frame, api, VERSIONS[api])
        return api.decode_response(frame, VERSIONS[api], body)

    def _send(self) -> None:
        if self._outgoing.pending:
            self.socket.send(self._outgoing.read())


def connect_all(port: int, context: ssl.SSLContext, count: int) -> tuple[float, list[_Client]]:
    """Let `count` clients connect and log in at the same time; return the seconds until all were served."""
    poller = select.epoll()
    began = time.perf_counter()
    clients = [_Client(port, context) for _ in range(count)]
    by_fd = {client.socket.fileno(): client for client in clients}
    for fd in by_fd:
        poller.register(fd, select.EPOLLOUT)
    connected: set[int] = set()
    waiting = set(by_fd)
    while waiting:
        events = poller.poll(TIMEOUT)
        if not events:
            raise RuntimeError(f"{len(waiting)} of {count} clients were not served within {TIMEOUT:.0f} s")
        for fd, _ in events:
            client = by_fd[fd]
            if fd in connected:
                client.receive()
            else:
                connected.add(fd)
                poller.modify(fd, select.EPOLLIN)
            try:
                next(client.steps)
            except StopIteration:
                waiting.discard(fd)
                poller.unregister(fd)
    return time.perf_counter() - began, clients


def main(port: int, ca_file: str, count: int) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(ca_file)
    with TlsClient(port, context, logs_in=True):
        pass  # now the salted password is known
    seconds, clients = connect_all(port, context, count)
    print(seconds, flush=True)
    signal.sigwait({signal.SIGTERM})
    del clients


if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
