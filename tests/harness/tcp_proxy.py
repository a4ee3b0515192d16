"""A TCP proxy in this process whose cable can be pulled: no data passes, and neither side gets an error."""

import selectors
import socket
import threading


class TcpProxy:
    """Forwards from `port` to 127.0.0.1:`target` until `close`. Between `cut` and `mend` it forwards nothing and keeps
    all connections open, as a network does that has lost a switch. With `record`, `streams` has what was forwarded, one
    bytearray for each direction of each connection."""

    def __init__(self, target: int, *, record: bool = False) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self.address = f"127.0.0.1:{self.port}"
        self._pairs: dict[socket.socket, socket.socket] = {}
        self._lock = threading.Lock()
        self._record = record
        self._stream_of: dict[socket.socket, bytearray] = {}
        self.streams: list[bytearray] = []
        self._cut = False
        self._closed = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def cut(self) -> None:
        self._cut = True

    def mend(self) -> None:
        """Make new connections work; break the old ones, because their undelivered data is lost."""
        with self._lock:
            for one in list(self._pairs):
                self._drop(one)
            self._cut = False

    def close(self) -> None:
        self._closed = True
        self._thread.join(10)
        with self._lock:
            for one in list(self._pairs):
                self._drop(one)
        self._listener.close()

    def _run(self) -> None:
        while not self._closed:
            with selectors.DefaultSelector() as selector:
                selector.register(self._listener, selectors.EVENT_READ)
                with self._lock:
                    if not self._cut:
                        for one in self._pairs:
                            selector.register(one, selectors.EVENT_READ)
                for key, _ in selector.select(0.02):
                    if key.fileobj is self._listener:
                        self._accept()
                    else:
                        assert isinstance(key.fileobj, socket.socket)
                        self._forward(key.fileobj)

    def _accept(self) -> None:
        near, _ = self._listener.accept()
        with self._lock:
            if self._cut:
                self._pairs[near] = near
                return
            try:
                far = socket.create_connection(("127.0.0.1", self._target), timeout=5)
            except OSError:
                near.close()
                return
            self._pairs[near], self._pairs[far] = far, near
            if self._record:
                self._stream_of[near], self._stream_of[far] = bytearray(), bytearray()
                self.streams += [self._stream_of[near], self._stream_of[far]]

    def _forward(self, source: socket.socket) -> None:
        with self._lock:
            other = self._pairs.get(source)
            if other is None or self._cut:
                return
            try:
                data = source.recv(65536)
                if data:
                    if self._record:
                        self._stream_of[source] += data
                    other.sendall(data)
                    return
            except OSError:
                pass
            self._drop(source)

    def _drop(self, one: socket.socket) -> None:
        other = self._pairs.pop(one, None)
        one.close()
        if other is not None and other is not one:
            self._pairs.pop(other, None)
            other.close()
