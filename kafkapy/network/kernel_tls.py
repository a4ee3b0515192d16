"""Kernel TLS: the kernel encrypts the records of replies, so that file regions are sent by sendfile.

OpenSSL handles the handshake and everything that is received, as on every other TLS connection. After the handshake,
the kernel gets the key for the server's records. From then on the connection has the sender of plain connections, and
the kernel encrypts what it sends.

The key is derived from the server's traffic secret (RFC 8446, 7.3), which OpenSSL passes to its key log, see KeyLog.
OpenSSL itself can give its keys to the kernel (`OP_ENABLE_KTLS`), but only if it also receives from the socket. Then
one call of `read` handles key updates for as long as the peer sends them: a flood of key updates would occupy a network
thread without end, and Python has no way to stop it. Besides, OpenSSL 3.0 makes two system calls for each record that
it receives.
"""

from __future__ import annotations

import hmac
import io
import os
import select
import socket
import ssl
import struct
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple, Protocol

from kafkapy._ext.tls_records import whole_records
from kafkapy.network.tls import MOST_OVERHEAD, RANDOM, RECORD, BadRecords, TlsTransport
from kafkapy.runtime.threads import Thread

# From linux/tls.h and linux/tcp.h.
_TCP_ULP, _SOL_TLS, _TLS_TX, _TLS_RX, _SET_RECORD_TYPE = 31, 282, 1, 2, 1
_TLS_1_3 = 0x0304
_CIPHER_SIZE = 4  # of version and cipher, the first fields of a crypto_info
_ALERT = 21
_CLOSE_NOTIFY = b"\x01\x00"
_MOST_SECRETS = 1000  # that are kept until `take` asks for them
# The smallest send buffer, as getsockopt returns it, with which a connection is handed over. A record that the kernel
# has begun takes room in the send buffer. If the record filled the buffer, there would never be room again, because the
# kernel sends only whole records.
_LEAST_SEND_BUFFER = 64 << 10
_PROBE_BYTES = 40_000  # more than two records


class Suite(NamedTuple):
    """What the kernel has to know about a cipher suite of TLS 1.3."""

    number: int  # TLS_CIPHER_… of linux/tls.h
    key_size: int
    salt_size: int  # the kernel takes the first bytes of the nonce apart from the others
    digest: str


SUITES = {
    "TLS_AES_128_GCM_SHA256": Suite(51, 16, 4, "sha256"),
    "TLS_AES_256_GCM_SHA384": Suite(52, 32, 4, "sha384"),
    "TLS_CHACHA20_POLY1305_SHA256": Suite(54, 32, 0, "sha256"),
}


def crypto_info(suite: Suite, secret: bytes, sequence: int) -> bytes:
    """Return the kernel's tls12_crypto_info_… structure for records that are protected by a traffic secret.

    `sequence` is the number of records that were already sent with this secret.
    """
    key = _expand(suite, secret, b"key", suite.key_size)
    nonce = _expand(suite, secret, b"iv", 12)
    salt, rest = nonce[: suite.salt_size], nonce[suite.salt_size :]
    return struct.pack("=HH", _TLS_1_3, suite.number) + rest + key + salt + struct.pack(">Q", sequence)


def _expand(suite: Suite, secret: bytes, label: bytes, size: int) -> bytes:
    """Return HKDF-Expand-Label(secret, label, "", size) of RFC 8446, for a size of at most one digest."""
    label = b"tls13 " + label
    info = struct.pack(">HB", size, len(label)) + label + b"\0"
    return hmac.digest(secret, info + b"\x01", suite.digest)[:size]


class KernelCalls(Protocol):
    """The system calls of kernel TLS. Tests without such a kernel use a replacement."""

    def take_key(self, sock: socket.socket, info: bytes) -> bool:
        """Give the kernel the key for what is sent on `sock` from now on. Return False if the kernel does not take the
        key: then the socket still sends bytes unencrypted. Raises OSError if the connection must be closed."""
        ...

    def send_alert(self, sock: socket.socket, alert: bytes) -> None:
        """Send an alert record. Does nothing if the socket is full or dead."""
        ...


class LinuxCalls:
    """The KernelCalls of this machine's kernel."""

    def take_key(self, sock: socket.socket, info: bytes) -> bool:
        try:
            sock.setsockopt(socket.IPPROTO_TCP, _TCP_ULP, b"tls")
            sock.setsockopt(_SOL_TLS, _TLS_TX, info)
        except OSError:
            return False
        if sock.getsockopt(_SOL_TLS, _TLS_TX, _CIPHER_SIZE) != info[:_CIPHER_SIZE]:
            raise OSError("the kernel does not encrypt with the cipher that it was given")
        return True

    def send_alert(self, sock: socket.socket, alert: bytes) -> None:
        record_type = (_SOL_TLS, _SET_RECORD_TYPE, bytes([_ALERT]))
        with suppress(OSError):
            sock.sendmsg([alert], [record_type], socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)


def suites_of_this_kernel() -> frozenset[str]:
    """Return the names of the cipher suites with which this kernel can encrypt a file.

    To find out, this process connects to itself for each suite and sends a file by sendfile; the kernel has to decrypt
    the same bytes at the other end. This loads the kernel module `tls`, if the process may do that.
    """
    return frozenset(name for name, suite in SUITES.items() if _can_send_a_file(suite))


def _can_send_a_file(suite: Suite) -> bool:
    info = crypto_info(suite, os.urandom(48), 0)
    data = os.urandom(_PROBE_BYTES)
    file = os.memfd_create("kafkapy-ktls", os.MFD_CLOEXEC)
    try:
        os.write(file, data)
        with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as to:
            sender, _ = server.accept()
            with sender:
                return LinuxCalls().take_key(sender, info) and _arrives(file, data, sender, to, info)
    except OSError:
        return False
    finally:
        os.close(file)


def _arrives(file: int, data: bytes, sender: socket.socket, receiver: socket.socket, info: bytes) -> bool:
    """Return True if the file, sent by sendfile, arrives decrypted. The socket buffers have room for all of it."""
    receiver.settimeout(1)
    sender.setblocking(False)
    receiver.setsockopt(socket.IPPROTO_TCP, _TCP_ULP, b"tls")
    receiver.setsockopt(_SOL_TLS, _TLS_RX, info)
    if os.sendfile(sender.fileno(), file, 0, len(data)) != len(data):
        return False
    received = bytearray()
    while len(received) < len(data):
        part = receiver.recv(len(data))
        if not part:
            return False
        received += part
    return received == data


class KernelTls:
    """The objects of a process that connections need to give their keys to the kernel. `suites` are the names of the
    cipher suites that the kernel knows. `stop` frees the descriptors."""

    def __init__(self, suites: frozenset[str], calls: KernelCalls | None = None) -> None:
        self.suites = suites
        self.calls = calls or LinuxCalls()
        self.keys = KeyLog()

    def transport(self, *args: Any) -> KernelTlsTransport:
        """Return the transport of a new connection; the arguments are those of TlsTransport."""
        return KernelTlsTransport(self, *args)

    def stop(self) -> None:
        """Free the descriptors. No handshake may be going on, and none may begin."""
        self.keys.close()


class KernelTlsTransport(TlsTransport):
    """TLS on one connection, with records that the kernel encrypts, if it can.

    A connection is not handed over to the kernel, but served as by TlsTransport, if it has TLS 1.2, a cipher suite that
    the kernel does not know, a very small send buffer or unsent bytes of the handshake, or if the kernel does not take
    its key.

    After the hand-over OpenSSL must not send, because the kernel counts the records. OpenSSL wants to send in two
    cases. When it fails, it has an alert, which is dropped: the connection is closed without an alert. When the peer
    updates its own key and asks for a new key of this side (Java does so after 128 GiB, then with every record),
    OpenSSL has the answer when the peer asks for the second time. Then the connection is closed: kernels before Linux
    6.14 cannot change a key.
    """

    __slots__ = ("_is_handed_over", "_kernel", "_random", "_secret", "_sent_records")

    def __init__(self, kernel: KernelTls, *args: Any) -> None:
        super().__init__(*args)
        self._kernel = kernel
        self._random = b""  # of the client, in its ClientHello
        self._secret: bytes | None = None
        self._sent_records = 0  # records in the last flight of the handshake that OpenSSL has sent
        self._is_handed_over = False

    def send(self, buffers: Sequence[bytes | bytearray | memoryview]) -> int:
        assert not self._is_handed_over, "the kernel has the key"
        return super().send(buffers)

    def _check_hello(self, record: bytes) -> None:
        super()._check_hello(record)
        self._random = record[RANDOM]

    def _do_handshake(self) -> None:
        try:
            super()._do_handshake()
        finally:
            self._secret = self._kernel.keys.take(self._random) or self._secret

    def _own_records(self) -> bytes:
        records = super()._own_records()
        if not self._is_handed_over:
            _, self._sent_records = whole_records(records, len(records), RECORD + MOST_OVERHEAD)
            return records
        if records and self._is_open:
            raise BadRecords("it asks for a new key, which a connection with kernel TLS cannot have")
        return b""

    def _end_stream(self) -> None:
        if self._is_handed_over:
            self._kernel.calls.send_alert(self._conn.sock, _CLOSE_NOTIFY)
        else:
            super()._end_stream()

    def _open(self, principal: str) -> None:
        # The records of the last step, session tickets, are the first ones that the traffic secret protects.
        self._hand_over(self._sent_records)
        super()._open(principal)

    def _hand_over(self, sequence: int) -> None:
        """Give the kernel the key, if that is possible. `sequence` records were sent with the key before."""
        cipher = self._tls.cipher()
        secret, self._secret = self._secret, None
        if secret is None or cipher is None or self._tls.version() != "TLSv1.3" or self.wants_write:
            return
        sock = self._conn.sock
        if cipher[0] not in self._kernel.suites or _send_buffer(sock) < _LEAST_SEND_BUFFER:
            return
        if self._kernel.calls.take_key(sock, crypto_info(SUITES[cipher[0]], secret, sequence)):
            self._is_handed_over = True
            self._encrypted_by = "kernel"
            self._conn.send_directly()


def _send_buffer(sock: socket.socket) -> int:
    return sock.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)


class KeyLog:
    """Gets the traffic secrets of handshakes from OpenSSL. Any thread may use it.

    OpenSSL passes the secrets only to the callback of its key log, and Python's `ssl` writes them to a file in the
    format of SSLKEYLOGFILE. Here this file is a pipe in this process, so the secrets are never in a file system.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        reader, writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._reader, self._writer = io.FileIO(reader, "rb"), io.FileIO(writer, "wb")
        self._rest = b""
        # By the client's random bytes, in hexadecimal. None if two handshakes had the same bytes: `take` returns None.
        self._secrets: dict[str, bytes | None] = {}
        self._is_closed = False
        self._thread = Thread(self._read_always, "kafkapy-tls-keys")
        self._thread.start()

    def attach(self, context: ssl.SSLContext) -> None:
        """Have OpenSSL log the secrets of the handshakes of `context` here. Does nothing if it does so already."""
        with self._lock:
            if context.keylog_filename is None:
                context.keylog_filename = f"/proc/self/fd/{self._writer.fileno()}"

    def take(self, random: bytes) -> bytes | None:
        """Return the server's traffic secret of the handshake with these random bytes of the client, None if there is
        none. Forget the secret."""
        with self._lock:
            self._read()
            return self._secrets.pop(random.hex(), None)

    def _read_always(self) -> None:
        """Read the pipe as soon as there is something in it.

        OpenSSL also logs a secret for each key update that it receives. If these secrets were not read, they would fill
        the pipe, and the network thread that receives the next key update would wait for ever.
        """
        poll = select.poll()
        poll.register(self._reader, select.POLLIN)
        while not self._is_closed:
            poll.poll()
            with self._lock:
                self._read()

    def _read(self) -> None:
        while data := self._reader.read(1 << 16):  # None if the pipe is empty
            self._rest += data
        *lines, self._rest = self._rest.split(b"\n")
        for line in lines:
            words = line.decode("ascii", "replace").split()
            if len(words) == 3 and words[0] == "SERVER_TRAFFIC_SECRET_0":
                # A client can send the random bytes of another client, and must not get the other's key.
                self._secrets[words[1]] = bytes.fromhex(words[2]) if words[1] not in self._secrets else None
        while len(self._secrets) > _MOST_SECRETS:
            del self._secrets[next(iter(self._secrets))]

    def close(self) -> None:
        """Close the pipe. No handshake may be going on."""
        if self._is_closed:
            return
        self._is_closed = True
        self._writer.write(b"\n")  # wakes the thread
        self._thread.join()
        # Not earlier: the thread may have seen `_is_closed` before it was woken. If it had closed the pipe then, the
        # number of the descriptor could be another file's, and the byte above would be written to that file.
        self._reader.close()
        self._writer.close()
