"""A running socket server with a handler that the test defines, and plain blocking clients for it."""

from __future__ import annotations

import os
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from kafkapy.network.connection import Connection
from kafkapy.network.metrics import METRICS
from kafkapy.network.replies import Reply
from kafkapy.network.sends import Residency
from kafkapy.network.settings import Listener, NetworkSettings
from kafkapy.network.socket_server import SocketServer
from kafkapy.network.transports import Prepare
from kafkapy.record.file_region import FileHandle, FileRegion
from kafkapy.runtime.clock import SYSTEM_CLOCK, Clock
from kafkapy.runtime.counters import Registry
from kafkapy.runtime.disk_pool import DiskPool
from kafkapy.runtime.read_pools import ReadPools

LONG = 20  # seconds: no test waits so long unless it fails


def framed(*payloads: bytes) -> bytes:
    return b"".join(struct.pack(">i", len(payload)) + payload for payload in payloads)


class Client:
    """A blocking connection that sends bytes and reads frames."""

    def __init__(self, port: int, host: str = "127.0.0.1", receive_buffer: int | None = None) -> None:
        self.sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        if receive_buffer is not None:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.sock.settimeout(LONG)
        self.sock.connect((host, port))
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, *payloads: bytes) -> None:
        self.sock.sendall(framed(*payloads))

    def send_aside(self, *payloads: bytes) -> threading.Thread:
        """Send from another thread: the payloads do not fit into the socket buffers until the replies are read."""
        thread = threading.Thread(target=self.send, args=payloads, daemon=True)
        thread.start()
        return thread

    def exactly(self, size: int) -> bytes:
        parts = []
        while size:
            part = self.sock.recv(min(size, 1 << 20))
            if not part:
                raise EOFError(f"the server closed the connection {size} bytes early")
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def frame(self) -> bytes:
        return self.exactly(struct.unpack(">i", self.exactly(4))[0])

    def frames(self, count: int) -> list[bytes]:
        return [self.frame() for _ in range(count)]

    def is_closed(self) -> bool:
        """Wait for the server to close the connection. Fail if it sends something instead."""
        try:
            data = self.sock.recv(1)
        except ConnectionResetError:
            return True
        assert data == b"", f"the server sent {data!r} instead of closing"
        return True

    def is_open(self) -> bool:
        """Return True if the server still answers (for handlers that echo)."""
        self.send(b"still there?")
        return self.frame() == b"still there?"

    def close(self) -> None:
        self.sock.close()


class Echo:
    """A handler that answers every frame with itself, and records the frames of each turn in `turns`."""

    def __init__(self) -> None:
        self.turns: list[list[bytes]] = []
        self.connections: dict[int, Connection] = {}

    def handle(self, connection: Connection, frames: list[memoryview]) -> Sequence[Reply]:
        self.connections[connection.id] = connection
        self.turns.append([bytes(frame) for frame in frames])
        return [self.answer(connection, bytes(frame)) for frame in frames]

    def answer(self, connection: Connection, frame: bytes) -> Reply:
        return [framed(frame)]


class OnePool(ReadPools):
    """Read pools that are the test's one pool for every file."""

    def __init__(self, pool: DiskPool) -> None:
        super().__init__(1)
        self.pool = pool

    def of_file(self, fd: int) -> DiskPool:
        return self.pool


class Running:
    """A started server on a free port."""

    def __init__(
        self,
        handler: Any,
        settings: NetworkSettings,
        clock: Clock = SYSTEM_CLOCK,
        pages: Residency | None = None,
        listeners: Sequence[Listener] = (Listener("PLAINTEXT", "127.0.0.1", 0),),
        disk_pool: DiskPool | None = None,
        prepare: Mapping[str, Prepare] | None = None,
    ) -> None:
        self.handler = handler
        self.counters = Registry()
        self.disk_pool = disk_pool or DiskPool(2)
        self.server = SocketServer(
            listeners,
            handler,
            settings,
            self.counters,
            self.disk_pool,
            OnePool(self.disk_pool),
            clock,
            pages,
            prepare,
        )
        self.ports = self.server.bind()
        self.port = next(iter(self.ports.values()))
        self.server.start()
        self.clients: list[Client] = []

    def connect(self, listener: str | None = None, **kwargs: Any) -> Client:
        client = Client(self.ports[listener] if listener else self.port, **kwargs)
        self.clients.append(client)
        return client

    def count(self, name: str) -> float:
        """Return a counter's value, summed over all processors."""
        return sum(value for _, value in self.counters.read()[METRICS[name]])  # type: ignore[misc]

    def stop(self) -> None:
        for client in self.clients:
            client.close()
        self.server.stop()
        self.disk_pool.stop()


Serve = Callable[..., Running]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Return a function that starts a server: `serve(handler, clock=..., pages=..., listeners=..., **settings)`."""
    running: list[Running] = []

    def start(handler: Any = None, **kwargs: Any) -> Running:
        ours = {
            key: kwargs.pop(key) for key in ("clock", "pages", "listeners", "disk_pool", "prepare") if key in kwargs
        }
        server = Running(handler or Echo(), NetworkSettings(**kwargs), **ours)
        running.append(server)
        return server

    yield start
    for server in running:
        server.stop()


def until(condition: Callable[[], bool]) -> None:
    """Wait until the condition is true. For changes by another thread that set no event."""
    pause = threading.Event()
    for _ in range(LONG * 200):
        if condition():
            return
        pause.wait(0.005)
    raise AssertionError("it did not come true")


def rss() -> int:
    """Return the resident bytes of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


@pytest.fixture
def region_of(tmp_path: Path) -> Callable[..., FileRegion]:
    """Return a function that writes a file and returns a region of it: `region_of(data, position=0, length=None)`."""

    def make(data: bytes, position: int = 0, length: int | None = None) -> FileRegion:
        path = tmp_path / f"file-{len(list(tmp_path.iterdir()))}"
        path.write_bytes(data)
        os.utime(path, (0, 0))  # the broker treats new files differently
        handle = FileHandle(os.open(path, os.O_RDONLY), path)
        return FileRegion(handle, position, len(data) - position if length is None else length)

    return make


@pytest.fixture
def many_files() -> None:
    """Raise the limit of descriptors for a thousand connections, with both ends in this process."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 4096
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted if hard == -1 else min(wanted, hard), hard))
