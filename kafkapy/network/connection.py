"""One client's connection: what its processor knows of it. Only that processor changes it."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kafkapy.network.buffers import Buffer
from kafkapy.network.replies import Pending
from kafkapy.network.sends import Outbox
from kafkapy.runtime.addresses import host_port
from kafkapy.runtime.logs import fields

if TYPE_CHECKING:
    from kafkapy.network.processor import Processor


class Connection:
    """For handlers: `id`, `name`, `peer`, `listener`, `session`, `patient`, `on_close` and `closed`. The rest is the
    network's.

    `session` is the handler's own to set. `patient`, too: the connection then comes behind the others, with a few of
    its like at a time, because there may be a thousand that have something to do at once. `on_close`, if set, is
    called once, on the processor, when it is closed.
    """

    __slots__ = (
        "big",
        "big_end",
        "big_needed",
        "broken",
        "carries_frames",
        "carry",
        "closed",
        "closing",
        "expects_big",
        "fd",
        "gone",
        "id",
        "kept",
        "last_active",
        "listener",
        "on_close",
        "outbox",
        "parked",
        "patient",
        "peer",
        "pending",
        "processor",
        "queued",
        "readable",
        "session",
        "sock",
    )

    def __init__(
        self, id: int, sock: socket.socket, listener: str, peer: tuple[str, int], processor: Processor, now: float
    ) -> None:
        self.id = id
        self.sock = sock
        self.fd = sock.fileno()
        self.listener = listener
        self.peer = peer
        self.processor = processor
        self.session: Any = None
        self.on_close: Callable[[], object] | None = None
        self.patient = False
        self.closed = False

        # Receiving. Bytes that belong to no handled frame yet are in `carry` (small) or `big` (one large frame).
        # Whether it is worth receiving. A receive that got less than it had room for has emptied the socket, and what
        # comes after it makes a new event; but of a peer that is gone no event will come: its end is still to be read.
        self.readable = True
        self.carry: bytearray | None = None
        self.carries_frames = False  # whether `carry` begins with a whole frame
        self.big: Buffer | None = None
        self.big_end = 0  # bytes of it that have arrived
        self.big_needed = 0  # bytes of it when it is complete, with the size
        self.expects_big = False  # the last frame was a large one

        # Answering.
        self.outbox = Outbox()
        self.pending: Pending | None = None
        self.kept: Buffer | None = None  # the receive buffer that `pending` still reads
        self.parked = False  # waits for the disk pool
        self.closing = False  # to be closed when the outbox is empty

        self.gone = False  # the peer has closed its side
        self.broken = False  # the connection was reset: nothing can be sent
        self.queued = False  # in the processor's list of connections to serve
        self.last_active = now

    @property
    def name(self) -> str:
        """As Kafka names connections: local address, peer's address, number."""
        try:
            local = _address(self.sock.getsockname())
        except OSError:
            local = "closed"
        return f"{local}-{_address(self.peer)}-{self.id}"

    @property
    def who(self) -> dict[str, Any]:
        """What a log line about it carries."""
        return fields(peer=_address(self.peer), listener=self.listener, connection=self.id)

    def __repr__(self) -> str:
        return f"Connection({self.id}, {self.listener}, {_address(self.peer)})"


def _address(address: Any) -> str:
    host, port = str(address[0]), address[1]
    return host_port(host, port)
