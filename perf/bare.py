"""Bare loops: they only move bytes, to show what the same bytes cost without a broker.

`receive FILE` accepts a connection and writes the received bytes to FILE; `follow FILE` also computes their CRC-32C,
as a follower has to. `append FILE` appends each received frame
(the first 4 bytes are its size) to FILE and sends ANSWER. `sendfile FILE` and `copy FILE` receive an offset and a
length, 8 bytes each, and send that part of FILE: with sendfile, or with read and send. `bare_loop` starts each loop as
a process, like a broker. The interpreter's share of the CPU time is below 1 % at 1 MiB per system call and about 10 %
at 4 KiB.
"""

from __future__ import annotations

import os
import socket
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from crc32c import crc32c

from perf.processes import Child

CHUNK = 1 << 20
ANSWER = bytes(48)  # about as long as a broker's produce response
SEND_BUFFER = 204_800  # kafkapy's default of socket.send.buffer.bytes; Apache Kafka's is half of it


@contextmanager
def bare_loop(what: str, file: Path) -> Iterator[tuple[int, int]]:
    """Run the loop `what` (a name in LOOPS) on `file`; yield its pid and its port."""
    child = Child([sys.executable, "-m", "perf.bare", what, str(file)], file.with_suffix(".out"), keep_stdout=True)
    try:
        yield child.pid, int(child.first_line("the bare loop did not start"))
    finally:
        child.stop()


def receive(connection: socket.socket, file: Path) -> None:
    """Write everything that arrives to the file. The caller then closes the connection, which tells the client that all
    of it is written."""
    buffer = memoryview(bytearray(CHUNK))
    fd = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    while count := connection.recv_into(buffer):
        os.write(fd, buffer[:count])


def follow(connection: socket.socket, file: Path) -> None:
    """Write everything that arrives to the file and compute the CRC-32C of it."""
    buffer = memoryview(bytearray(CHUNK))
    fd = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    while count := connection.recv_into(buffer):
        crc32c(buffer[:count])
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


LOOPS = {loop.__name__: loop for loop in (receive, follow, append, sendfile, copy)}


def main(what: str, file: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        print(server.getsockname()[1], flush=True)
        while True:  # until it is stopped
            connection, _ = server.accept()
            with connection:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                LOOPS[what](connection, Path(file))


if __name__ == "__main__":
    main(*sys.argv[1:])
