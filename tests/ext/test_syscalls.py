"""System calls on real descriptors: what is returned, what is raised, and that nothing outside a range is touched."""

import errno
import os
import select
import socket
import threading

import pytest

from kafkapy._ext import syscalls


@pytest.fixture
def pair():
    a, b = socket.socketpair()
    a.setblocking(False)
    b.setblocking(False)
    with a, b:
        yield a, b


@pytest.fixture
def file(tmp_path):
    fd = os.open(tmp_path / "f", os.O_RDWR | os.O_CREAT)
    yield fd
    os.close(fd)


@pytest.mark.parametrize("recv", [syscalls.recv_into, syscalls.recv_into_long])
def test_recv_fills_the_asked_range_only(pair, recv) -> None:
    a, b = pair
    buffer = bytearray(b"." * 200_000)
    assert recv(a.fileno(), buffer, 10, 20) == -1
    b.send(b"hello")
    assert recv(a.fileno(), buffer, 10, 199_000) == 5
    assert buffer[8:17] == b"..hello.."
    b.send(b"0123456789")
    assert recv(a.fileno(), buffer, 0, 4) == 4
    assert buffer[:6] == b"0123.."
    b.close()
    assert recv(a.fileno(), buffer, 0, 100) == 6
    assert recv(a.fileno(), buffer, 0, 100) == 0


@pytest.mark.parametrize(("start", "end"), [(-1, 5), (0, 11), (5, 5), (6, 5)])
def test_a_range_outside_the_buffer_is_refused(pair, start, end) -> None:
    for recv in (syscalls.recv_into, syscalls.recv_into_long):
        with pytest.raises(ValueError, match="cannot receive into"):
            recv(pair[0].fileno(), bytearray(10), start, end)
    with pytest.raises(BufferError):
        syscalls.recv_into(pair[0].fileno(), bytes(10), 0, 10)


def test_unread_tells_data_from_the_end_and_from_nothing(pair) -> None:
    a, b = pair
    assert syscalls.unread(a.fileno()) == -1
    b.send(b"x")
    assert syscalls.unread(a.fileno()) == 1
    assert syscalls.unread(a.fileno()) == 1
    a.recv(1)
    b.close()
    assert syscalls.unread(a.fileno()) == 0


def test_sendmsg_returns_minus_one_when_the_socket_is_full(pair) -> None:
    a, b = pair
    chunk = [b"z" * 100_000]
    sent = 0
    while (n := syscalls.sendmsg(a.fileno(), chunk, 0, 1)) != -1:
        assert n > 0
        sent += n
    received = 0
    while received < sent:
        received += len(b.recv(1 << 20))
    assert syscalls.sendmsg(a.fileno(), [b"more"], 0, 1, more=True) == 4


def test_a_peer_that_is_gone_raises_and_does_not_signal(pair) -> None:
    a, b = pair
    b.close()
    with pytest.raises(BrokenPipeError):
        syscalls.sendmsg(a.fileno(), [b"x"], 0, 1)
    with pytest.raises(OSError, match="Bad file descriptor"):
        syscalls.recv_into(-1, bytearray(1), 0, 1)


def test_sendmsg_gathers_a_slice_of_the_parts_and_skips(pair) -> None:
    a, b = pair
    parts = [b"never", b"abc", bytearray(b"def"), memoryview(b"ghi"), b"", b"jkl", b"never"]
    assert syscalls.sendmsg(a.fileno(), parts, 1, 6, 2) == 10
    assert b.recv(100) == b"cdefghijkl"
    assert syscalls.sendmsg(a.fileno(), parts, 1, 2, 3) == 0
    with pytest.raises(ValueError, match="cannot skip"):
        syscalls.sendmsg(a.fileno(), parts, 1, 6, 4)
    with pytest.raises(ValueError, match="cannot send the parts"):
        syscalls.sendmsg(a.fileno(), parts, 1, 8)
    with pytest.raises(TypeError):
        syscalls.sendmsg(a.fileno(), ["text"], 0, 1)


def test_sendmsg_takes_at_most_64_parts_and_says_how_much_that_was(pair) -> None:
    a, b = pair
    parts = [bytes([i]) * 3 for i in range(100)]
    assert syscalls.sendmsg(a.fileno(), parts, 0, 100) == 192
    assert syscalls.sendmsg(a.fileno(), parts, 64, 100) == 108
    assert b.recv(1000) == b"".join(parts)


def test_sendfile_sends_the_range_and_0_at_the_end(pair, file) -> None:
    a, b = pair
    data = os.urandom(200_000)
    os.pwrite(file, data, 0)
    assert syscalls.sendfile(a.fileno(), file, 5, 10) == 10
    assert b.recv(100) == data[5:15]
    assert syscalls.sendfile(a.fileno(), file, 200_000, 10) == 0
    position = 0
    received = b""
    while position < len(data):
        n = syscalls.sendfile(a.fileno(), file, position, len(data) - position)
        if n == -1:
            received += b.recv(1 << 20)
        else:
            position += n
    while len(received) < len(data):
        received += b.recv(1 << 20)
    assert received == data


@pytest.mark.parametrize("count", [1, 63, 64, 65, 700])
@pytest.mark.parametrize("size", [1, 2000])
def test_pwritev_writes_the_buffers_one_after_the_other(file, count, size) -> None:
    parts = [bytes([i % 256]) * size for i in range(count)]
    assert syscalls.pwritev(file, parts, 7) == count * size
    assert os.pread(file, count * size + 100, 7) == b"".join(parts)


def test_pwritev_stops_after_1024_buffers_and_says_so(file) -> None:
    parts = [b"ab"] * 1500
    assert syscalls.pwritev(file, parts, 0) == 2048
    assert syscalls.pwritev(file, [], 0) == 0
    assert syscalls.pwritev(file, (memoryview(b"x"), bytearray(b"y")), 0) == 2
    with pytest.raises(TypeError):
        syscalls.pwritev(file, [b"good", 5], 0)


def test_pwritev_writes_at_a_position_and_raises_with_the_errno(file) -> None:
    assert syscalls.pwritev(file, [b"abc"], 3) == 3
    assert syscalls.pwritev(file, [bytes(300_000)], 10) == 300_000
    assert os.pread(file, 6, 0) == b"\0\0\0abc"
    full = os.open("/dev/full", os.O_WRONLY)
    try:
        with pytest.raises(OSError, match="No space left") as failure:
            syscalls.pwritev(full, [b"x"], 0)
        assert failure.value.errno == errno.ENOSPC
    finally:
        os.close(full)


def test_epoll_wait_and_events() -> None:
    event = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
    with select.epoll() as epoll:
        epoll.register(event, select.EPOLLIN)
        assert syscalls.epoll_wait(epoll.fileno(), 0) == []
        assert syscalls.epoll_wait(epoll.fileno(), 1) == []
        threading.Thread(target=syscalls.event_set, args=(event,)).start()
        assert syscalls.epoll_wait(epoll.fileno(), -1) == [(event, select.EPOLLIN)]
        syscalls.event_set(event)
        syscalls.event_clear(event)
        syscalls.event_clear(event)
        assert syscalls.epoll_wait(epoll.fileno(), 0) == []
    os.close(event)
    with pytest.raises(OSError, match="Bad file descriptor"):
        syscalls.epoll_wait(-1, 0)
