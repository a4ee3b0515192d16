"""TLS on connections from clients and to other servers: the handshake, the records and the end of the stream.

OpenSSL never sees a socket here: `TlsTransport` receives into a buffer that all connections of a thread share, cuts the
bytes into records, and passes whole records to OpenSSL through a MemoryBIO. So OpenSSL keeps no incomplete record, and
the only buffers of an idle connection are the two MemoryBIOs, which keep the size of the largest record. Up to 128 KiB
of encrypted data are sent by one sendmsg. A socket BIO would be slower: it sends each record by itself.

A handshake costs as much CPU time as 10 to 40 small requests, so its steps run on a pool of few threads: a thousand
clients that reconnect at once wait for each other there, and delay no other connection.
"""

from __future__ import annotations

import logging
import ssl
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from hashlib import sha256
from typing import TYPE_CHECKING

from kafkapy._ext.syscalls import recv_into, recv_into_long, sendmsg
from kafkapy._ext.tls_records import whole_records
from kafkapy.network.logins import HANDSHAKE, LOGIN, TLS
from kafkapy.runtime.disk_pool import PoolStopped
from kafkapy.runtime.threads import NoThread

if TYPE_CHECKING:
    from kafkapy.network.connection import Connection
    from kafkapy.network.kernel_tls import KernelTls
    from kafkapy.network.tls_connections import TlsConnections
    from kafkapy.runtime.disk_pool import DiskPool

log = logging.getLogger(__name__)

RECORD = 16 << 10  # the most data that a record has
HEADER = 5  # bytes before a record: its type, its version and its length
MOST_OVERHEAD = 2048  # bytes that a record may have beyond its data (RFC 5246, 6.2.3)
_HANDSHAKE, _CLIENT_HELLO = 22, 1  # types of a record and of a message in it
# The largest ClientHello. OpenSSL reserves memory for the size that a peer announces, up to 128 KiB. Real clients send
# 200 bytes to 2 KiB, and some more with a session ticket that contains their certificates.
MOST_CLIENT_HELLO = 16 << 10
RANDOM = slice(11, 43)  # of the client or the server, in the record with its hello
_RETRY_REQUEST = sha256(b"HelloRetryRequest").digest()  # the random bytes of a HelloRetryRequest (RFC 8446, 4.1.3)
TURN = 128 << 10  # bytes that are encrypted, and then sent, at a time
# Parts of a reply that are shorter than this are joined into one record. Measured: a record of its own costs about as
# much as copying and encrypting 4 KiB.
JOIN_BELOW = 4 << 10
LONG = 64 << 10  # a receive with room for more bytes, so for a large frame, releases the GIL
# Records that a peer's handshake may have. The handshake of a client with a long certificate chain has about ten.
MOST_HANDSHAKE_RECORDS = 64
# Records without data, such as key updates, that a peer may send beyond one for each record with data. Each such record
# costs CPU time, and gets an answer.
MOST_EMPTY_RECORDS = 64
# Records after which other connections are served. Records may be as short as one byte, and a thousand of them cost
# about two milliseconds.
MOST_RECORDS_A_TURN = 1024

# Returns the principal of a client by its certificate in DER encoding (None: the client has none), or "" if the client
# has yet to log in by SASL. Called on a pool thread. Raises an exception, whose text is the reason for the log, if the
# client must not log in.
PrincipalOf = Callable[["bytes | None"], str]


class TlsFailed(ConnectionError):
    """Raised when a connection has to be closed because of its peer's TLS records. The reason was logged."""


class BadRecords(Exception):
    """Raised for bytes that are not TLS records, and for records that are not accepted. The text is the reason."""


class _Shared(threading.local):
    """The receive buffer of this thread. It holds bytes only while one connection is being read."""

    def __init__(self) -> None:
        self.view = memoryview(bytearray(TURN + RECORD + MOST_OVERHEAD))


_shared = _Shared()


class TlsListener:
    """Makes the transports of a listener's connections.

    `context()` returns the current SSLContext, and is called for each new connection. `principal_of` None: the
    handshake does not authenticate the clients, because a SASL login follows. `kernel` None: no connection gives its
    key to the kernel.
    """

    def __init__(
        self,
        context: Callable[[], ssl.SSLContext],
        pool: DiskPool,
        principal_of: PrincipalOf | None = None,
        connections: TlsConnections | None = None,
        kernel: KernelTls | None = None,
    ) -> None:
        self._context = context
        self._pool = pool
        self._principal_of = principal_of
        self._connections = connections
        self._kernel = kernel

    def prepare(self, conn: Connection) -> TlsTransport:
        """Return the transport of a new connection, see `kafkapy.network.transports.Prepare`."""
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        context = self._context()
        if self._kernel is not None:
            self._kernel.keys.attach(context)
        tls = context.wrap_bio(incoming, outgoing, server_side=True)
        transport = TlsTransport if self._kernel is None else self._kernel.transport
        return transport(conn, tls, incoming, outgoing, self._pool, self._principal_of, self._connections)


class TlsDialer:
    """Makes the transports of connections to other servers. `context()` returns the current SSLContext."""

    def __init__(self, context: Callable[[], ssl.SSLContext], pool: DiskPool) -> None:
        self._context = context
        self._pool = pool

    def prepare(self, conn: Connection, host: str) -> TlsTransport:
        """Return the transport of a new connection to `host`, the name or address that the server's certificate must
        have, if the context checks it."""
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = self._context().wrap_bio(incoming, outgoing, server_hostname=host)
        return TlsTransport(conn, tls, incoming, outgoing, self._pool)


class TlsTransport:
    """TLS on one connection, see `kafkapy.network.transports.Transport`.

    The connection's processor calls all methods. `_step` alone runs on the pool; until it is over (`_is_stepping`),
    nothing else uses OpenSSL's objects. KernelTlsTransport overrides the methods that differ when the kernel encrypts.
    """

    __slots__ = (
        "_conn",
        "_connections",
        "_counted",
        "_empty",
        "_encrypted_by",
        "_ended",
        "_fed",
        "_handshake_records",
        "_hello_expected",
        "_holds",
        "_in_turn",
        "_incoming",
        "_is_drained",
        "_is_open",
        "_is_stepping",
        "_outcome",
        "_outgoing",
        "_plain",
        "_pool",
        "_principal_of",
        "_read",
        "_rest",
        "_skip",
        "_tls",
        "_unsent",
        "_used",
        "_waits_for_first_step",
        "_write",
        "wants_write",
    )

    def __init__(
        self,
        conn: Connection,
        tls: ssl.SSLObject,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        pool: DiskPool,
        principal_of: PrincipalOf | None = None,
        connections: TlsConnections | None = None,
    ) -> None:
        self._conn = conn
        self._connections = connections
        self._counted: tuple[str, str, str, str] | None = None  # this connection in `connections`
        self._encrypted_by = "openssl"
        self._tls = tls
        self._read: Callable[[int, memoryview], int] = tls.read  # type: ignore[assignment]
        self._write = tls.write
        self._incoming = incoming
        self._outgoing = outgoing
        self._pool = pool
        self._principal_of = principal_of
        # The handshake.
        self._is_open = False
        self._is_stepping = False
        self._waits_for_first_step = not tls.server_side
        self._outcome: str | Exception | None = None  # of the last step; a text is the client's principal
        self._handshake_records = 0
        self._hello_expected = tls.server_side  # the next handshake record begins with a ClientHello
        # Receiving. `_rest` has received bytes that OpenSSL has not got yet.
        self._rest: bytes | memoryview = b""
        self._is_drained = False  # in this call of `recv_into`, the socket had no more bytes
        self._holds = False  # OpenSSL may hold records, or the rest of one
        self._plain = b""  # decrypted by `is_more`
        self._ended = False  # the peer sends no more
        self._fed = 0  # records that OpenSSL has got since it held none
        self._used = 0  # records among those in `_fed` that had data
        self._empty = 0  # records without data, minus records with data
        self._in_turn = 0  # records that OpenSSL has got in this call of `recv_into`
        # Sending. `_unsent` has encrypted bytes; of the first, `_skip` bytes were sent.
        self._unsent: list[bytes] = []
        self._skip = 0
        self.wants_write = False
        if conn.login is not None:
            conn.login.stage = HANDSHAKE

    # --- Transport

    def recv_into(self, fd: int, buffer: memoryview, start: int, end: int) -> int:
        self._is_drained = False
        self._in_turn = 0
        # Receive nothing from a client that does not read. But receive the responses of another server all the same: it
        # may read this side's request only when it has sent them.
        if self.wants_write and not self.write() and not self._conn.outgoing:
            return -1
        if not self._is_open and not self._shake_hands(fd):
            return 0 if self._ended else -1
        position = start
        if self._plain:
            size = min(len(self._plain), end - start)
            buffer[start : start + size] = self._plain[:size]
            self._plain = self._plain[size:]
            position += size
        try:
            while position < end:
                if self._holds:
                    position = self._decrypt(buffer, position, end)
                elif self._in_turn >= MOST_RECORDS_A_TURN and not self._ended:
                    self._conn.processor.post_ready(self._conn)
                    break
                elif self._ended or not self._feed(fd, end - position):
                    break
        except (ssl.SSLError, BadRecords) as error:
            self._fail(error)
        finally:
            self._keep_rest()
        if position == start:
            return 0 if self._ended else -1
        if self._ended:
            self._conn.gone = True
        return position - start

    def send(self, buffers: Sequence[bytes | bytearray | memoryview]) -> int:
        if not self._is_open:
            return -1
        taken = 0
        short: list[bytes | bytearray | memoryview] = []
        short_size = 0
        for buffer in buffers:
            size = min(len(buffer), TURN - taken)
            if size < JOIN_BELOW:
                if short_size + size > RECORD:
                    self._encrypt(b"".join(short))
                    short, short_size = [], 0
                short.append(buffer if size == len(buffer) else memoryview(buffer)[:size])
                short_size += size
            else:
                if short:
                    self._encrypt(b"".join(short))
                    short, short_size = [], 0
                view = memoryview(buffer)
                for begin in range(0, size, RECORD):
                    self._encrypt(view[begin : min(begin + RECORD, size)])
            taken += size
            if taken == TURN:
                break
        if short:
            self._encrypt(short[0] if len(short) == 1 else b"".join(short))
        self.write()
        return taken

    def write(self) -> bool:
        unsent = self._unsent
        while unsent:
            sent = sendmsg(self._conn.fd, unsent, 0, len(unsent), self._skip)
            if sent < 0:
                self.wants_write = True
                return False
            sent += self._skip
            count = 0
            while count < len(unsent) and sent >= len(unsent[count]):
                sent -= len(unsent[count])
                count += 1
            del unsent[:count]
            self._skip = sent
        self.wants_write = False
        return True

    def is_more(self) -> bool:
        """Return whether the peer has sent data, which may follow records without data, such as a key update. To find
        out, decrypt the next records: all records look alike until then."""
        if not self._plain and self._is_open:
            buffer = bytearray(RECORD)
            received = self.recv_into(self._conn.fd, memoryview(buffer), 0, RECORD)
            self._plain = bytes(buffer[: max(0, received)])
        return bool(self._plain)

    def close(self, *, can_send: bool) -> None:
        if self._counted is not None and self._connections is not None:
            self._connections.remove(self._counted)
        if can_send and self._is_open and not self._is_stepping and not self._unsent:
            self._end_stream()

    # --- records

    def _encrypt(self, data: bytes | bytearray | memoryview) -> None:
        if data:  # for OpenSSL, an empty write is an error
            self._write(data)
            self._unsent.append(self._outgoing.read())

    def _decrypt(self, buffer: memoryview, position: int, end: int) -> int:
        """Decrypt the records that OpenSSL holds into buffer[position:end], as far as there is room. Return the
        position after the decrypted bytes.

        Raises BadRecords if the peer sends too many records without data.
        """
        read, incoming = self._read, self._incoming
        try:
            while position < end:
                room = end - position
                got = read(room, buffer[position:end])
                if not got:  # close_notify
                    self._holds = False
                    self._ended = True
                    self._rest = b""
                    break
                position += got
                if got < room or not self._tls.pending():  # so all of that record was read
                    self._used += 1
                    if not incoming.pending:
                        self._holds = False
                        self._count_empty_records()
                        if self._outgoing.pending:
                            self._send_own()
                        break
        except ssl.SSLZeroReturnError:
            self._holds = False
            self._ended = True
            self._rest = b""
        except ssl.SSLWantReadError:
            self._holds = False
            self._count_empty_records()
            self._send_own()
        return position

    def _count_empty_records(self) -> None:
        """Count the records without data that OpenSSL got since the last call. Called when OpenSSL holds no records.

        Raises BadRecords if there were too many.
        """
        self._empty = max(0, self._empty + self._fed - 2 * self._used)
        self._fed = self._used = 0
        if self._empty > MOST_EMPTY_RECORDS:
            raise BadRecords("it sent too many records without data, such as key updates")

    def _feed(self, fd: int, room: int) -> bool:
        """Pass the next whole records, about RECORD bytes, to OpenSSL. Return False if there are none: then the socket
        is empty, or the stream has ended (`_ended`).

        Raises BadRecords for bytes that are not records.
        """
        while True:
            size, count = _whole_records(self._rest)
            if count:
                if not self._is_open and self._tls.server_side:
                    size, count = self._up_to_handshake_record(self._rest[:size])
                self._incoming.write(self._rest[:size])
                self._rest = self._rest[size:]
                self._fed += count
                self._in_turn += count
                self._holds = True
                return True
            if self._is_drained:
                return False
            view = _shared.view
            held = len(self._rest)
            view[:held] = self._rest
            stop = min(len(view), held + max(room, RECORD) + MOST_OVERHEAD)
            received = (recv_into_long if room > LONG else recv_into)(fd, view, held, stop)
            if received <= 0:
                self._ended = received == 0
                self._rest = view[:held]
                return False
            self._rest = view[: held + received]
            # A receive that returned less than it had room for has emptied the socket, see Connection.readable.
            self._is_drained = held + received < stop and not self._conn.gone
            if self._conn.login is not None:
                self._conn.login.has_sent = True

    def _keep_rest(self) -> None:
        """Copy the rest out of the buffer that the connections share."""
        if type(self._rest) is memoryview:
            self._rest = bytes(self._rest)

    def _end_stream(self) -> None:
        """Send a close_notify. Do not wait for that of the peer."""
        with suppress(ssl.SSLError):
            self._tls.unwrap()
        self._send_own()

    def _send_own(self) -> None:
        """Send the records that OpenSSL itself has made: of the handshake, alerts, answers to key updates."""
        if records := self._own_records():
            self._unsent.append(records)
            self.write()

    def _own_records(self) -> bytes:
        """Return the records that OpenSSL itself has made and that are not sent yet."""
        if not self._outgoing.pending:
            return b""
        records = self._outgoing.read()
        if records[RANDOM] == _RETRY_REQUEST:
            self._hello_expected = True
        return records

    def _fail(self, error: Exception) -> None:
        """Log the reason, send OpenSSL's alert if there is one, and raise TlsFailed, which closes the connection."""
        self._is_open = False  # there will be no close_notify
        reason = _reason(error)
        conn = self._conn
        if conn.login is not None:
            conn.login.fail(reason, TLS)
        elif conn.outgoing:
            conn.failure = f"TLS: {reason}"  # the code that opened it logs that, once for many attempts
            log.debug("TLS failed: %s", reason, extra=conn.who)
        else:
            conn.processor.logins.counts.warn(conn, "closed a TLS connection", reason)
        with suppress(OSError):
            self._send_own()
        raise TlsFailed(reason) from error

    # --- the handshake

    def _shake_hands(self, fd: int) -> bool:
        """Continue the handshake as far as the received records allow. Return True if it is over."""
        if self._is_stepping:
            return False
        outcome, self._outcome = self._outcome, None
        if isinstance(outcome, Exception):
            self._fail(outcome)
        self._send_own()
        if outcome is not None:
            self._open(str(outcome))
            return True
        if self.wants_write:
            return False
        if self._waits_for_first_step:
            self._waits_for_first_step = False
            self._begin_step()
            return False
        try:
            is_fed = self._feed(fd, RECORD)
            self._handshake_records, self._fed = self._handshake_records + self._fed, 0
            if self._handshake_records > MOST_HANDSHAKE_RECORDS:
                raise BadRecords(f"its handshake has more than {MOST_HANDSHAKE_RECORDS} records")
        except BadRecords as error:
            self._fail(error)
        finally:
            self._keep_rest()
        if is_fed:
            self._begin_step()
        elif self._ended and self._conn.outgoing:
            self._conn.failure = "TLS: the connection was closed during the handshake"
        return False

    def _up_to_handshake_record(self, records: bytes | memoryview) -> tuple[int, int]:
        """Return the size and number of the first of `records`, up to and with a handshake record that is not
        encrypted.

        OpenSSL gets only one such handshake record at a time, because it may answer with a HelloRetryRequest: then
        there is a second ClientHello to check. Raises BadRecords if the handshake record has to begin with a
        ClientHello of at most MOST_CLIENT_HELLO bytes, and does not.
        """
        position = count = 0
        while position < len(records):
            end = position + HEADER + (records[position + 3] << 8 | records[position + 4])
            count += 1
            if records[position] == _HANDSHAKE:
                if self._hello_expected:
                    self._hello_expected = False
                    self._check_hello(bytes(records[position:end]))
                return end, count
            position = end
        return position, count

    def _check_hello(self, record: bytes) -> None:
        if len(record) < HEADER + 4 or record[HEADER] != _CLIENT_HELLO:
            raise BadRecords("its handshake does not begin with a ClientHello")
        size = int.from_bytes(record[HEADER + 1 : HEADER + 4], "big")
        if size > MOST_CLIENT_HELLO:
            raise BadRecords(f"its ClientHello has {size} bytes, more than {MOST_CLIENT_HELLO}")

    def _begin_step(self) -> None:
        self._is_stepping = True
        try:
            self._pool.submit(self._step)
        except (PoolStopped, NoThread) as error:
            self._is_stepping = False
            self._fail(error)

    def _step(self) -> None:
        """Take one step of the handshake, and find out who the client is when it is over. Runs on the pool."""
        try:
            if self._conn.closed:
                return  # the client may have given up while the step waited for the pool
            self._do_handshake()
            principal = ""
            if self._principal_of is not None:
                principal = self._principal_of(self._tls.getpeercert(binary_form=True))
            self._outcome = principal
        except ssl.SSLWantReadError:
            pass
        except Exception as error:
            self._outcome = error.with_traceback(None)  # the traceback refers to this object: a reference cycle
        self._is_stepping = False
        self._conn.processor.post_ready(self._conn)

    def _do_handshake(self) -> None:
        self._tls.do_handshake()

    def _open(self, principal: str) -> None:
        self._is_open = True
        self._holds = True  # requests may have come with the end of the handshake
        if self._connections is not None:
            self._counted = self._connections.add(self._conn.listener, self._tls, self._encrypted_by)
        if principal:
            self._conn.principal = principal
        login = self._conn.login
        if login is not None:
            if principal:
                login.succeed(TLS)
            else:
                login.stage = LOGIN


def _whole_records(data: bytes | memoryview) -> tuple[int, int]:
    """Return the size and number of the first whole records in `data`: one, or as many as have RECORD bytes together.

    Raises BadRecords if `data` does not begin with TLS records.
    """
    size, count = whole_records(data, RECORD, RECORD + MOST_OVERHEAD)
    if count < 0:
        _check_type(data, size)
        length = data[size + 3] << 8 | data[size + 4]
        raise BadRecords(f"it sent a record of {length} bytes, more than TLS allows")
    return size, count


def _check_type(data: bytes | memoryview, position: int) -> None:
    """Raise BadRecords, with a guess at what the peer speaks, if no record begins at `position`."""
    if 20 <= data[position] <= 24 and (len(data) < position + 2 or data[position + 1] == 3):
        return
    begin = bytes(data[position : position + 8])
    if begin[:1] == b"\0":
        guess = "a request in plain text, perhaps of a client with security.protocol=PLAINTEXT or SASL_PLAINTEXT"
    elif begin.split(b" ")[0] in (b"GET", b"POST", b"HEAD", b"PUT", b"OPTIONS", b"CONNECT", b"PRI"):
        guess = "an HTTP request"
    else:
        guess = f"bytes that are not TLS: {begin.hex(' ')}"
    raise BadRecords(f"it sent {guess}")


_REASONS = {
    "NO_SHARED_CIPHER": "it offers no cipher suite that this listener has (ssl.cipher.suites)",
    "UNSUPPORTED_PROTOCOL": "it offers no TLS version that this listener has (ssl.enabled.protocols)",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "it has sent no certificate (ssl.client.auth=required)",
    "DECRYPTION_FAILED_OR_BAD_RECORD_MAC": "it sent a record whose authentication code is wrong",
    "NO_RENEGOTIATION": "it wants to renegotiate, which is not allowed",
}


def _reason(error: Exception) -> str:
    """Return the reason for the log line of a connection that fails with `error`."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not accepted: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        reason = error.reason or str(error)
        if "_ALERT_" in reason:
            alert = reason.partition("_ALERT_")[2].lower().replace("_", " ")
            return f"it refuses the connection: alert {alert}"
        return _REASONS.get(reason) or reason.lower().replace("_", " ")
    return str(error) or type(error).__name__
