"""A transport in place of TLS, with masked records, a handshake in two steps, an end-of-stream record, and responses
of the transport itself. `Records` is the processor's end, `RecordClient` the test's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kafkapy._ext import syscalls
from kafkapy.network.connection import Connection
from kafkapy.runtime.disk_pool import DiskPool

from .conftest import Client, framed

HELLO, WELCOME, PROOF, DATA, UPDATE, UPDATED, END = range(0xA1, 0xA8)
HEAD = 4  # the kind (1 byte) and the length (3 bytes) of a record
LARGEST = 1000  # plain bytes in a record
MOST = 5 * LARGEST  # plain bytes that are encoded before they are sent
MASK = bytes(byte ^ 0x5A for byte in range(256))


def record(kind: int, body: bytes) -> bytes:
    return bytes([kind]) + len(body).to_bytes(3, "big") + body.translate(MASK)


def records(data: bytes) -> bytes:
    return b"".join(record(DATA, data[at : at + LARGEST]) for at in range(0, len(data), LARGEST))


class Incoming:
    """The received bytes, cut into records."""

    def __init__(self) -> None:
        self.bytes = bytearray()

    def next(self) -> tuple[int, bytes] | None:
        if len(self.bytes) < HEAD:
            return None
        end = HEAD + int.from_bytes(self.bytes[1:HEAD], "big")
        if len(self.bytes) < end:
            return None
        kind, body = self.bytes[0], bytes(self.bytes[HEAD:end]).translate(MASK)
        assert HELLO <= kind <= END, "bytes on the wire that are in no record"
        del self.bytes[:end]
        return kind, body


class Records:
    """The transport of one connection.

    The server's first step answers HELLO with as many bytes of WELCOME as HELLO requests. The second checks the PROOF
    on a pool thread. While there are encoded bytes to send, it neither receives nor accepts bytes to send.
    """

    def __init__(self, conn: Connection, pool: DiskPool, welcome: int | None = None) -> None:
        """`welcome` is for the client's end: the number of bytes that HELLO requests."""
        self.conn = conn
        self.pool = pool
        self.open = False
        self.checking = False
        self.ended = False
        self.closes = 0
        self._incoming = Incoming()
        self._unsent = b""
        self._decoded = b""
        if welcome is not None:
            self._unsent = record(HELLO, b"%d" % welcome)

    @property
    def wants_write(self) -> bool:
        return bool(self._unsent)

    def write(self) -> bool:
        while self._unsent:
            sent = syscalls.sendmsg(self.conn.fd, [self._unsent], 0, 1)
            if sent < 0:
                return False
            self._unsent = self._unsent[sent:]
        return True

    def recv_into(self, fd: int, buffer: Any, start: int, end: int) -> int:
        filled = start
        while filled < end and self._fill(fd):
            some = self._decoded[: end - filled]
            buffer[filled : filled + len(some)] = some
            self._decoded = self._decoded[len(some) :]
            filled += len(some)
        if filled > start:
            self.conn.gone = self.conn.gone or self.ended
            return filled - start
        return 0 if self.ended else -1

    def _fill(self, fd: int) -> bool:
        """Receive and decode. Return True if there are decoded bytes."""
        scratch = bytearray(4096)
        while not self._decoded:
            if not self.write() or self.checking or self.ended:
                return False
            found = self._incoming.next()
            if found is not None:
                self._take(*found)
                continue
            received = syscalls.recv_into(fd, scratch, 0, len(scratch))
            if received <= 0:
                self.ended = received == 0
                return False
            self._incoming.bytes += scratch[:received]
        return True

    def _take(self, kind: int, body: bytes) -> None:
        if kind == HELLO:
            self._unsent = record(WELCOME, b"w" * int(body))
        elif kind == WELCOME:
            self._unsent = record(PROOF, b"User:records")
            self.open = True
        elif kind == PROOF:
            self.checking = True
            self.pool.submit(self._check, body.decode())
        elif kind == UPDATE:
            self._unsent = record(UPDATED, b"u" * int(body))
        elif kind == END:
            self.ended = True
        elif kind == DATA:
            assert self.open
            self._decoded = body

    def _check(self, principal: str) -> None:
        self.conn.principal = principal
        self.open = principal != "User:nobody"
        self.ended = not self.open
        self.checking = False
        self.conn.processor.post_ready(self.conn)

    def send(self, buffers: Sequence[Any]) -> int:
        assert not self._unsent
        if not self.open:
            return -1
        data = b"".join(bytes(memoryview(part)[:MOST]) for part in buffers)[:MOST]
        self._unsent = records(data)
        self.write()
        return len(data)

    def is_more(self) -> bool:
        return self._fill(self.conn.fd)

    def close(self, *, can_send: bool) -> None:
        if not can_send:
            return
        self.closes += 1
        if self.write():
            self._unsent = record(END, b"")
            self.write()


class RecordClient(Client):
    """The client's end, with blocking calls."""

    def __init__(self, port: int, welcome: int = 10, shaken: bool = True, **kwargs: Any) -> None:
        super().__init__(port, **kwargs)
        self.incoming = Incoming()
        self.decoded = b""
        self.welcome = welcome
        if shaken:
            self.hello()
            self.await_welcome()
            self.prove()

    def hello(self) -> None:
        self.sock.sendall(record(HELLO, b"%d" % self.welcome))

    def await_welcome(self) -> None:
        assert self.record() == (WELCOME, b"w" * self.welcome)

    def prove(self, principal: bytes = b"User:records") -> None:
        self.sock.sendall(record(PROOF, principal))

    def send(self, *payloads: bytes) -> None:
        self.sock.sendall(records(framed(*payloads)))

    def record(self) -> tuple[int, bytes]:
        while (found := self.incoming.next()) is None:
            part = self.sock.recv(1 << 16)
            if not part:
                raise EOFError("closed without the end of the stream")
            self.incoming.bytes += part
        return found

    def exactly(self, size: int) -> bytes:
        parts, there = [self.decoded], len(self.decoded)
        while there < size:
            kind, body = self.record()
            assert kind == DATA, kind
            parts.append(body)
            there += len(body)
        data = b"".join(parts)
        self.decoded = data[size:]
        return data[:size]

    def is_closed(self) -> bool:
        """Return True if the server sends the end of the stream, and then closes."""
        assert self.record() == (END, b"")
        assert not self.decoded
        assert not self.incoming.bytes
        assert self.sock.recv(1) == b""
        return True
