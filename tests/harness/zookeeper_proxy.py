"""A proxy between one client and ZooKeeper that counts the client's changes and cuts the client off after one of them.

It understands as much of ZooKeeper's protocol as that needs: frames with a length in front, requests that begin with a
number and the kind of operation, responses that begin with the number of their request.
"""

import contextlib
import socket
import struct
import threading
from collections.abc import Callable

from tests.harness.zookeeper import end_session

# create, delete, setData, multi, create2, createContainer, deleteContainer and createTTL
_CHANGES = {1, 2, 5, 14, 15, 19, 20, 21}


class ZooKeeperProxy:
    """Forwards from `address` to 127.0.0.1:`port` until `close`. After a cut, new connections wait until `mend`."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.session: tuple[int, bytes] | None = None  # id and password of the client's last session
        self.changes = 0  # how many changes the client has sent since `limit`
        self._state = threading.Condition()
        self._sockets: set[socket.socket] = set()
        self._limit: int | None = None
        self._answered = True
        self._last: int | None = None  # the number of the last change before the cut
        self._cut = False
        self._closed = False
        self._start(self._accept)

    @property
    def is_cut(self) -> bool:
        return self._cut

    def limit(self, changes: int | None, *, answered: bool = True) -> None:
        """Count from zero, and cut the client off after `changes` changes (None: never).

        With `answered`, the client gets the response to the last change and is cut off when it sends another change.
        Otherwise it is cut off when ZooKeeper has made the last change, without the response.
        """
        with self._state:
            self.changes, self._limit, self._answered, self._last = 0, changes, answered, None

    def cut(self) -> None:
        """Break all connections."""
        with self._state:
            self._cut = True
            for one in self._sockets:
                with contextlib.suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)
            self._state.notify_all()

    def mend(self) -> None:
        """Let new and waiting connections through, without a limit."""
        self.limit(None)
        with self._state:
            self._cut = False
            self._state.notify_all()

    def end_session(self) -> None:
        """End the client's session, as if it had expired: its ephemeral nodes are gone."""
        assert self.session is not None
        end_session(f"127.0.0.1:{self._port}", self.session)

    def close(self) -> None:
        self._closed = True
        self.cut()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _start(self, target: Callable[..., object], *args: object) -> None:
        threading.Thread(target=target, args=args, daemon=True).start()

    def _accept(self) -> None:
        while not self._closed:
            with contextlib.suppress(OSError):
                near, _ = self._listener.accept()
                self._start(self._serve, near)

    def _serve(self, near: socket.socket) -> None:
        with self._state:
            self._state.wait_for(lambda: not self._cut or self._closed)
        with near, contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self._port)) as far:
            with self._state:
                self._sockets |= {near, far}
            try:
                self._start(self._responses, near, far)
                self._requests(near, far)
            finally:
                with self._state:
                    self._sockets -= {near, far}
                for one in (near, far):
                    with contextlib.suppress(OSError):
                        one.shutdown(socket.SHUT_RDWR)

    def _requests(self, near: socket.socket, far: socket.socket) -> None:
        far.sendall(_frame(near))
        while frame := _frame(near):
            number, operation = struct.unpack_from(">ii", frame, 4)
            if operation in _CHANGES and not self._may_pass(number):
                return
            far.sendall(frame)

    def _may_pass(self, number: int) -> bool:
        """Count a change. If the limit is reached, cut the client off as `limit` says, and return False."""
        with self._state:
            if self._cut:
                return False
            if self._limit is None or self.changes < self._limit:
                self.changes += 1
                if self.changes == self._limit:
                    self._last = number
                return True
            # Without the response, the thread that reads responses cuts.
            self._state.wait_for(lambda: self._last is None or self._cut)
        self.cut()
        return False

    def _responses(self, near: socket.socket, far: socket.socket) -> None:
        with contextlib.suppress(OSError):
            frame = _frame(far)
            if not frame:
                return
            session, size = struct.unpack_from(">qi", frame, 12)
            self.session = session, frame[24 : 24 + size]
            near.sendall(frame)
            while frame := _frame(far):
                (number,) = struct.unpack_from(">i", frame, 4)
                is_last = self._last is not None and number == self._last
                if is_last and not self._answered:
                    self.cut()
                    return
                near.sendall(frame)
                if is_last:
                    with self._state:
                        self._last = None
                        self._state.notify_all()


def _frame(source: socket.socket) -> bytes:
    """Return the next frame with its length, or b"" at the end."""
    head = _exactly(source, 4)
    body = _exactly(source, struct.unpack(">i", head)[0]) if head else b""
    return head + body if body else b""


def _exactly(source: socket.socket, count: int) -> bytes:
    got = b""
    while len(got) < count:
        try:
            more = source.recv(count - len(got))
        except OSError:
            return b""
        if not more:
            return b""
        got += more
    return got
