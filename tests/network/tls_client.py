"""The client's end of TLS connections: one on a socket, and one whose records the test holds in its hands."""

from __future__ import annotations

import functools
import ssl
import threading
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.harness.certificates import Issued, Pki, pem

from .conftest import Client, framed


@functools.cache
def pki() -> Pki:
    return Pki()


def server_context(
    issued: Issued | None = None, *, client_auth: ssl.VerifyMode = ssl.CERT_NONE, version: ssl.TLSVersion | None = None
) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.options |= ssl.OP_NO_RENEGOTIATION
    _load(context, issued or pki().server)
    context.verify_mode = client_auth
    _limit(context, version)
    return context


def client_context(issued: Issued | None = None, *, version: ssl.TLSVersion | None = None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if issued is not None:
        _load(context, issued)
    else:
        context.load_verify_locations(cadata=pem(pki().authority.certificate))
    _limit(context, version)
    return context


def _load(context: ssl.SSLContext, issued: Issued) -> None:
    with TemporaryDirectory() as directory:
        path = Path(directory) / "keystore.pem"
        path.write_text(issued.pem())
        context.load_cert_chain(path)
    context.load_verify_locations(cadata=pem(pki().authority.certificate))


def _limit(context: ssl.SSLContext, version: ssl.TLSVersion | None) -> None:
    if version is not None:
        context.minimum_version = context.maximum_version = version


class TlsClient(Client):
    """A blocking connection that sends and reads frames through TLS."""

    def __init__(self, port: int, context: ssl.SSLContext | None = None, receive_buffer: int | None = None) -> None:
        super().__init__(port, receive_buffer=receive_buffer)
        self.sock = (context or client_context()).wrap_socket(self.sock, server_hostname="localhost")


class RecordClient(Client):
    """A connection that makes TLS records, which the test sends as it likes by `sock.sendall`.

    One thread may send while another receives, which Python's SSLSocket does not allow.
    """

    def __init__(self, port: int, context: ssl.SSLContext | None = None) -> None:
        super().__init__(port)
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._lock = threading.Lock()
        self.tls = (context or client_context()).wrap_bio(self.incoming, self.outgoing, server_hostname="localhost")

    def hello(self) -> bytes:
        """Return the client's first record."""
        try:
            self.tls.do_handshake()
        except ssl.SSLWantReadError:
            return self.outgoing.read()
        raise AssertionError("a handshake needs the server")

    def finish(self) -> bytes:
        """Read the server's part of a handshake (TLS 1.3), and return the client's last record of it."""
        while True:
            try:
                self.tls.do_handshake()
                return self.outgoing.read()
            except ssl.SSLWantReadError:
                self._receive()

    def next_records(self) -> bytes:
        """Return what the client sends after the server's first answer, with TLS 1.2 in the midst of the handshake."""
        while True:
            try:
                self.tls.do_handshake()
            except ssl.SSLWantReadError:
                pass
            if self.outgoing.pending:
                return self.outgoing.read()
            self._receive()

    def records(self, *payloads: bytes) -> bytes:
        """Return the record or records with these payloads as frames."""
        data = framed(*payloads)
        with self._lock:
            if data:
                self.tls.write(data)
            return self.outgoing.read()

    def send(self, *payloads: bytes) -> None:
        self.sock.sendall(self.records(*payloads))

    def shake_hands(self) -> None:
        is_over = False
        while not is_over:
            try:
                self.tls.do_handshake()
                is_over = True
            except ssl.SSLWantReadError:
                pass
            if self.outgoing.pending:
                self.sock.sendall(self.outgoing.read())
            if not is_over:
                self._receive()

    def exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            try:
                with self._lock:
                    part = self.tls.read(size - len(data))
            except ssl.SSLWantReadError:
                self._receive()
                continue
            if not part:
                raise EOFError("the server has ended the stream")
            data += part
        return bytes(data)

    def is_closed(self) -> bool:
        """Wait for the end of the stream. Fail if the server sends data instead."""
        try:
            self.exactly(1)
        except (EOFError, ConnectionResetError, ssl.SSLError):
            return True
        raise AssertionError("the server has sent data instead of closing")

    def _receive(self) -> None:
        data = self.sock.recv(1 << 16)
        if not data:
            raise EOFError("the server closed the connection without ending the stream")
        with self._lock:
            self.incoming.write(data)
