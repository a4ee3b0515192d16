"""The state of one connection, from a client or to another server. Only the connection's processor changes it."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kafkapy._ext.syscalls import recv_into, recv_into_long
from kafkapy.network.buffers import Buffer
from kafkapy.network.replies import Pending
from kafkapy.network.sends import Outbox
from kafkapy.runtime.addresses import host_port
from kafkapy.runtime.logs import fields

if TYPE_CHECKING:
    from kafkapy.network.logins import Login
    from kafkapy.network.processor import Processor
    from kafkapy.network.replies import Handler
    from kafkapy.network.sends import Sender
    from kafkapy.network.transports import Transport, TransportSender

ANONYMOUS = "User:ANONYMOUS"  # Kafka's principal of a connection without authentication


class Connection:
    """The state of one connection.

    Handlers may use `id`, `name`, `peer`, `listener`, `outgoing`, `handler`, `principal`, `login`, `largest_frame`,
    `session`, `rights`, `quota_client`, `muted_until`, `patient`, `may_be_idle`, `on_close`, `failure` and `closed`.
    The other attributes are internal to this package.

    A handler may set nine of these attributes. `handler` handles the next frames, and `principal` is the user who
    sends them; both change when a client has authenticated. `largest_frame` is the largest size that the next frames
    may have. `session`, `rights` and `quota_client` hold any objects of the handler. If `patient` is True, the
    connection is served after the others: only a few patient connections are served in each iteration of the
    processor's loop, because a thousand of them may have work at the same time. If `may_be_idle` is True, the
    connection is not closed after `connections.max.idle.ms`. `on_close` is a callback that runs once, on the processor,
    when the connection is closed.
    """

    __slots__ = (
        "big",
        "big_began",
        "big_end",
        "big_needed",
        "broken",
        "carries_frames",
        "carry",
        "closed",
        "closing",
        "expects_big",
        "failure",
        "fd",
        "gone",
        "handler",
        "id",
        "kept",
        "largest_frame",
        "last_active",
        "listener",
        "login",
        "may_be_idle",
        "muted_until",
        "on_close",
        "outbox",
        "outgoing",
        "parked",
        "patient",
        "peer",
        "pending",
        "principal",
        "processor",
        "queued",
        "quota_client",
        "readable",
        "recv_into",
        "recv_into_long",
        "rights",
        "sender",
        "session",
        "sock",
        "starved",
        "transport",
    )

    def __init__(
        self,
        id: int,
        sock: socket.socket,
        listener: str,
        peer: tuple[str, int],
        processor: Processor,
        now: float,
        sender: Sender,
        handler: Handler,
        largest_frame: int,
        *,
        outgoing: bool = False,
    ) -> None:
        self.id = id
        self.sock = sock
        self.fd = sock.fileno()
        self.listener = listener
        self.peer = peer
        self.processor = processor
        self.outgoing = outgoing  # opened by this process: the frames that arrive are responses
        # Only `recv_into` and the sender call recv and send on the socket. All plain connections of a processor share
        # one sender.
        self.transport: Transport | None = None
        self.recv_into: Callable[[int, memoryview, int, int], int] = recv_into
        self.recv_into_long: Callable[[int, memoryview, int, int], int] = recv_into_long
        self.sender: Sender | TransportSender = sender
        self.handler = handler
        self.largest_frame = largest_frame
        self.failure = ""  # why the transport of an outgoing connection has failed
        self.principal = ANONYMOUS
        self.login: Login | None = None  # the client has to authenticate, and has not done so yet
        self.muted_until = 0.0  # nothing is received before this monotonic time; 0: not muted. See Processor.mute
        self.session: Any = None
        self.rights: Any = None
        self.quota_client: Any = None
        self.on_close: Callable[[], object] | None = None
        self.patient = False
        self.may_be_idle = False
        self.closed = False

        # Receiving. Received bytes of frames that are not handled yet are in `carry` (small frames) or `big` (one large
        # frame). `readable` is whether a receive may return something. A receive that returned less than it had room
        # for has emptied the socket, and later bytes cause a new epoll event. A peer that has closed its side causes no
        # more events: then `readable` stays True until a receive has returned the end of the stream.
        self.readable = True
        self.carry: bytearray | None = None
        self.carries_frames = False  # whether `carry` begins with a whole frame
        self.big: Buffer | None = None
        self.big_end = 0  # bytes in `big` that have arrived
        self.big_needed = 0  # bytes in `big` when the frame is complete, with its size field
        self.big_began = 0.0  # when `big` was begun, a monotonic time
        self.expects_big = False  # whether the last frame was a large one
        self.starved = False  # the connection waits for RequestMemory for the large frame that begins in `carry`

        # Sending.
        self.outbox = Outbox()
        self.pending: Pending | None = None
        self.kept: Buffer | None = None  # the receive buffer that `pending` still reads
        self.parked = False  # the current reply waits for a thread of the disk pool
        self.closing = False  # the connection is closed when the outbox is empty

        self.gone = False  # the peer has closed its side
        self.broken = False  # the connection was reset: nothing can be sent
        self.queued = False  # in the processor's list of connections to serve
        self.last_active = now

    def set_transport(self, transport: Transport, sender: TransportSender) -> None:
        """Have `transport` receive, and `sender` send, all bytes of the connection. Called before the first byte."""
        self.transport = transport
        self.recv_into = self.recv_into_long = transport.recv_into
        self.sender = sender

    def send_directly(self) -> None:
        """Send replies as on a plain connection, although there is a transport: the kernel encrypts them."""
        self.sender = self.processor.sender

    def drop_transport(self, plain: Sender) -> None:
        """Remove the transport of a closed connection, and set `plain` as its sender.

        A transport refers to its connection, so keeping the transport would keep a reference cycle.
        """
        self.transport = None
        self.recv_into, self.recv_into_long = recv_into, recv_into_long
        self.sender = plain

    @property
    def name(self) -> str:
        """Return the connection's name in Kafka's form: local address, address of the peer, connection number."""
        try:
            local = _address(self.sock.getsockname())
        except OSError:
            local = "closed"
        return f"{local}-{_address(self.peer)}-{self.id}"

    @property
    def who(self) -> dict[str, Any]:
        """Return the fields that identify this connection in a log line: peer, listener and connection number."""
        listener = {"listener": self.listener} if self.listener else {}
        return fields(peer=_address(self.peer), **listener, connection=self.id)

    def __repr__(self) -> str:
        return f"Connection({self.id}, {self.listener or 'outgoing'}, {_address(self.peer)})"


def _address(address: Any) -> str:
    host, port = str(address[0]), address[1]
    return host_port(host, port)
