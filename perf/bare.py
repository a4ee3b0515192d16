"""Loops that are no broker: what the same bytes cost when nothing is done but to move them.

`receive FILE` takes a connection and writes what arrives to FILE; `append FILE` writes each frame, whose size its first
4 bytes say, at FILE's end and answers it with ANSWER. `sendfile FILE` and `copy FILE` answer each offset
and length that arrive, 8 bytes each, with that part of FILE: by sendfile, or by read and send. Each is a process of its
own, as a broker is, started by `bare_loop`. At 1 MiB a system call the interpreter's part is below one hundredth, at
4 KiB it is about a tenth.
"""

from __future__ import annotations

import os
import socket
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from perf.processes import Child

CHUNK = 1 << 20
ANSWER = bytes(48)  # about the size of a broker's
SEND_BUFFER = 204_800  # socket.send.buffer.bytes of kafkapy; Apache Kafka's is half of it


@contextmanager
def bare_loop(what: str, file: Path) -> Iterator[tuple[int, int]]:
    """Runs the loop `what` ("receive", "append", "sendfile" or "copy") on `file`; yields its pid and its port."""
    child = Child([sys.executable, "-m", "perf.bare", what, str(file)], file.with_suffix(".out"), keep_stdout=True)
    try:
        assert child.process.stdout is not None
        line = child.process.stdout.readline()
        if not line:
            child.process.wait()
            raise child.failure("the bare loop did not start")
        yield child.pid, int(line)
    finally:
        child.stop()


def receive(connection: socket.socket, file: Path) -> None:
    """Reads until the client ends, then closes: the client's sign that all of it is written."""
    buffer = memoryview(bytearray(CHUNK))
    fd = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    while count := connection.recv_into(buffer):
        os.write(fd, buffer[:count])


def append(connection: socket.socket, file: Path) -> None:
    fd = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    while head := connection.recv(4, socket.MSG_WAITALL):
        (size,) = struct.unpack(">i", head)
        os.write(fd, connection.recv(size, socket.MSG_WAITALL))
        connection.sendall(ANSWER)


def sendfile(connection: socket.socket, file: Path) -> None:
    fd = os.open(file, os.O_RDONLY)
    for offset, length in _asked(connection):
        end = offset + length
        while offset < end:
            sent = os.sendfile(connection.fileno(), fd, offset, end - offset)
            if sent == 0:
                return
            offset += sent


def copy(connection: socket.socket, file: Path) -> None:
    buffer = memoryview(bytearray(CHUNK))
    fd = os.open(file, os.O_RDONLY)
    for offset, length in _asked(connection):
        end = offset + length
        while offset < end:
            count = os.preadv(fd, [buffer[: end - offset]], offset)
            if count == 0:
                return
            connection.sendall(buffer[:count])
            offset += count


def _asked(connection: socket.socket) -> Iterator[tuple[int, int]]:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
    while request := connection.recv(16, socket.MSG_WAITALL):
        yield struct.unpack(">qq", request)


def main(what: str, file: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        print(server.getsockname()[1], flush=True)
        while True:  # until it is stopped
            connection, _ = server.accept()
            with connection:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                {"receive": receive, "append": append, "sendfile": sendfile, "copy": copy}[what](connection, Path(file))


if __name__ == "__main__":
    main(*sys.argv[1:])
