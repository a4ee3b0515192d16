"""TLS for the load generator: connections, the settings of brokers, and what encryption alone costs."""

from __future__ import annotations

import re
import socket
import ssl
import subprocess
from collections.abc import Mapping
from pathlib import Path

from kafkapy.client.login import log_in
from kafkapy.protocol.apis import SASL_AUTHENTICATE, SASL_HANDSHAKE, Api
from kafkapy.security.sasl.scram_client import ScramClient
from kafkapy.testing.secured import Secured
from perf.measurement import GIB
from perf.raw_client import RawClient

# Java and OpenSSL both prefer it with TLS 1.3, so both brokers are measured with it.
CIPHER, VERSION = "TLS_AES_256_GCM_SHA384", "TLSv1.3"
RECORD = 16 << 10
TOGETHER = 256 << 10  # bytes that are encrypted before they are sent, and received before they are decrypted
USER, PASSWORD, MECHANISM = "perf", "perf-secret", "SCRAM-SHA-256"


def client_context(secured: Secured) -> ssl.SSLContext:
    """Return the context of clients, which trusts the brokers' certificate."""
    assert secured.ca_file is not None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(secured.ca_file)
    return context


class TlsSocket:
    """A blocking socket with TLS, as far as RawClient uses it.

    Python's own SSLSocket makes two system calls for each record that it receives, and one for each that it sends.
    This one receives and sends many records at a time, so that the broker is the limit, not the client.
    """

    def __init__(self, plain: socket.socket, context: ssl.SSLContext) -> None:
        self._plain = plain
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname="localhost")
        self._buffer = memoryview(bytearray(TOGETHER))
        self.fileno = plain.fileno
        self.close = plain.close
        self._shake_hands()

    def sendall(self, data: bytes | bytearray | memoryview) -> None:
        view = memoryview(data)
        for begin in range(0, len(view), TOGETHER):
            part = view[begin : begin + TOGETHER]
            for at in range(0, len(part), RECORD):
                self._tls.write(part[at : at + RECORD])
            self._plain.sendall(self._outgoing.read())

    def recv_into(self, view: memoryview) -> int:
        """Receive until there are bytes, and decrypt all that were received, as far as `view` has room."""
        got = 0
        while True:
            try:
                while got < len(view):
                    size = self._tls.read(len(view) - got, view[got:])  # type: ignore[arg-type]
                    if not size:
                        return got
                    got += int(size)
                return got
            except ssl.SSLWantReadError:
                if got:
                    return got
                received = self._plain.recv_into(self._buffer)
                if not received:
                    return 0
                self._incoming.write(self._buffer[:received])

    def _shake_hands(self) -> None:
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                self._plain.sendall(self._outgoing.read())
                received = self._plain.recv_into(self._buffer)
                if not received:
                    raise ConnectionError("the broker closed the connection during the TLS handshake") from None
                self._incoming.write(self._buffer[:received])
            else:
                break
        self._plain.sendall(self._outgoing.read())
        found = self._tls.cipher(), self._tls.version()
        if found[0] is None or (found[0][0], found[1]) != (CIPHER, VERSION):
            raise RuntimeError(f"the broker speaks {found}, but {VERSION} with {CIPHER} is compared")


class TlsClient(RawClient):
    """A RawClient with TLS; with `log_in`, it also logs in by SCRAM as USER."""

    def __init__(self, port: int, context: ssl.SSLContext, *, logs_in: bool = False) -> None:
        super().__init__(port)
        try:
            self.socket = TlsSocket(self.socket, context)  # type: ignore[assignment]
            if logs_in:
                log_in(_Login(self), ScramClient(MECHANISM, USER, PASSWORD))
        except BaseException:
            self.socket.close()
            raise


class _Login:
    """A RawClient as `log_in` needs it."""

    address = "the broker"

    def __init__(self, client: RawClient) -> None:
        self._client = client

    def version_of(self, api: Api) -> int:
        return {SASL_HANDSHAKE: 1, SASL_AUTHENTICATE: 2}[api]

    def exchange(self, api: Api, request: object) -> object:
        return self._client.ask(api, self.version_of(api), request)

    def exchange_token(self, token: bytes) -> bytes:
        raise NotImplementedError


def settings(secured: Secured, extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the settings of a broker, of either kind, whose only listener is secured."""
    return {**secured.settings(), **(extra or {})}


def kernel_has_tls() -> bool:
    """Return True if the kernel module for TLS is loaded."""
    ulp = Path("/proc/sys/net/ipv4/tcp_available_ulp")
    return ulp.exists() and "tls" in ulp.read_text().split()


def openssl_seconds(seconds: int = 1) -> float:
    """Return the CPU seconds that OpenSSL needs to encrypt a GiB in pieces of 16 KiB with the cipher of CIPHER."""
    command = ["openssl", "speed", "-evp", "aes-256-gcm", "-bytes", str(RECORD), "-seconds", str(seconds), "-mr"]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = re.search(r"\+F:.*:([\d.]+)\s*$", output, re.MULTILINE)
    if found is None:
        raise RuntimeError(f"openssl speed printed no rate: {output}")
    return GIB / float(found[1])
