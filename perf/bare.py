"""Bare loops: they only move bytes, to show what the same bytes cost without a broker.

`receive FILE` accepts a connection and writes the received bytes to FILE; `follow FILE` also computes their CRC-32C,
as a follower has to. `append FILE` appends each received frame (the first 4 bytes are its size) to FILE and sends
ANSWER; `echo FILE` only sends it. `sendfile FILE` and `copy FILE` receive an offset and a length, 8 bytes each, and
send that part of FILE: with sendfile, or with read and send. `bare_loop` starts each loop as a process, like a broker.
The interpreter's share of the CPU time is below 1 % at 1 MiB per system call and about 10 % at 4 KiB.
"""

from __future__ import annotations

import os
import select
import socket
import struct
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from crc32c import crc32c

from kafkapy._ext import syscalls
from kafkapy.network.sends import SCRATCH, WINDOW
from perf.processes import Child

CHUNK = 1 << 20
ANSWER = bytes(48)  # about as long as a broker's produce response
SEND_BUFFER = 204_800  # kafkapy's default of socket.send.buffer.bytes; Apache Kafka's is half of it


@contextmanager
def bare_loop(what: str, file: Path, host: str = "127.0.0.1") -> Iterator[tuple[int, int]]:
    """Run the loop `what` (a name in LOOPS) on `file`; yield its pid and its port."""
    command = [sys.executable, "-m", "perf.bare", what, str(file), host]
    child = Child(command, file.with_suffix(".out"), keep_stdout=True)
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


def echo(connection: socket.socket, _: Path) -> None:
    """Answer frames, which all have the length of the first one, with as few system calls as possible."""
    buffer = memoryview(bytearray(CHUNK))
    length = have = 0
    while got := connection.recv_into(buffer):
        length = length or 4 + struct.unpack_from(">i", buffer)[0]
        frames, have = divmod(have + got, length)
        connection.sendall(ANSWER * frames)


def sendfile(connection: socket.socket, file: Path) -> None:
    source = os.open(file, os.O_RDONLY)
    fd = connection.fileno()
    _answer(connection, lambda offset, count: syscalls.sendfile(fd, source, offset, min(count, WINDOW)))


def copy(connection: socket.socket, file: Path) -> None:
    source = os.open(file, os.O_RDONLY)
    fd = connection.fileno()
    view = memoryview(bytearray(SCRATCH))

    def send(offset: int, count: int) -> int:
        return syscalls.sendmsg(fd, [view[: os.preadv(source, [view[:count]], offset)]], 0, 1)

    _answer(connection, send)


def _answer(connection: socket.socket, send: Callable[[int, int], int]) -> None:
    """Answer the requests of a connection as a broker's network thread does: `send(offset, count)` never waits, and
    returns the number of bytes sent, -1 if the socket is full. Then the loop waits until the socket has room."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
    connection.setblocking(False)
    fd = connection.fileno()
    request = memoryview(bytearray(16))
    offset = end = 0
    with select.epoll() as epoll:
        epoll.register(fd, select.EPOLLIN | select.EPOLLOUT | select.EPOLLET)
        while True:
            sent = 0
            while offset < end and (sent := send(offset, end - offset)) > 0:
                offset += sent
            if sent < 0 or (received := syscalls.recv_into(fd, request, 0, 16)) < 0:
                syscalls.epoll_wait(epoll.fileno(), -1)
            elif received == 0:
                return
            else:
                offset, length = struct.unpack(">qq", request)
                end = offset + length


LOOPS = {loop.__name__: loop for loop in (receive, follow, append, echo, sendfile, copy)}


def main(what: str, file: str, host: str) -> None:
    with socket.create_server((host, 0)) as server:
        print(server.getsockname()[1], flush=True)
        while True:  # until it is stopped
            connection, _ = server.accept()
            with connection:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                LOOPS[what](connection, Path(file))


if __name__ == "__main__":
    main(*sys.argv[1:])
