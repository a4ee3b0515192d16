"""Captures what goes over the loopback interface to and from some ports, as tcpdump does. It needs root.

capture = Capture([9093])
...
capture.stop()
for stream in capture.streams(9093):
    assert is_tls(stream.data)
"""

from __future__ import annotations

import ctypes
import socket
import struct
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

_ALL_PROTOCOLS = 3
_ATTACH_FILTER, _RECEIVE_BUFFER_FORCE = 26, 33  # options of sockets
_PACKET_LEVEL, _STATISTICS, _OUTGOING = 263, 6, 4
_BUFFER = 64 << 20
_LARGEST = 1 << 17
_SYN = 2
_LOAD_2, _LOAD_1, _JUMP_IF_EQUAL, _RETURN = 0x28, 0x30, 0x15, 0x06  # instructions of a packet filter
_LARGEST_RECORD = (16 << 10) + 256


class Stream(NamedTuple):
    """The bytes of one direction of a connection. `source` and `target` are ports."""

    source: int
    target: int
    data: bytes


@dataclass
class _Direction:
    begin: int  # the sequence number of the first byte
    parts: dict[int, bytes] = field(default_factory=dict)  # by position

    def data(self) -> bytes:
        """Return the bytes. Raise AssertionError if some are missing."""
        found = bytearray()
        for position, part in sorted(self.parts.items()):
            assert position <= len(found), f"{position - len(found)} bytes are missing in the capture"
            found[position:] = part if position + len(part) > len(found) else found[position:]
        return bytes(found)


class Capture:
    """The packets to and from TCP ports of 127.0.0.1, from now until `stop`."""

    def __init__(self, ports: Sequence[int]) -> None:
        self._directions: dict[tuple[int, int], list[_Direction]] = {}  # by source and target
        self._stopping = threading.Event()
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        self._socket.setsockopt(socket.SOL_SOCKET, _RECEIVE_BUFFER_FORCE, _BUFFER)
        _attach(self._socket, _filter(ports))
        self._socket.bind(("lo", _ALL_PROTOCOLS))
        self._socket.settimeout(0.2)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the capture. Raise AssertionError if the system has dropped packets."""
        self._stopping.set()
        self._thread.join()
        statistics = self._socket.getsockopt(_PACKET_LEVEL, _STATISTICS, 8)
        self._socket.close()
        _, dropped = struct.unpack("II", statistics)
        assert not dropped, f"the capture lacks {dropped} packets"

    def streams(self, port: int) -> list[Stream]:
        """Return what has gone to and from this port, by connection and direction. Call it after `stop`."""
        return [
            Stream(source, target, one.data())
            for (source, target), directions in self._directions.items()
            if port in (source, target)
            for one in directions
        ]

    def _run(self) -> None:
        while True:
            try:
                packet, (_, _, kind, *_) = self._socket.recvfrom(_LARGEST)
            except TimeoutError:
                if self._stopping.is_set():
                    return
            else:
                if kind != _OUTGOING:  # a packet on the loopback interface is seen twice
                    self._add(packet)

    def _add(self, packet: bytes) -> None:
        size = struct.unpack_from(">H", packet, 16)[0]
        tcp = 14 + (packet[14] & 15) * 4
        source, target, number = struct.unpack_from(">HHI", packet, tcp)
        directions = self._directions.setdefault((source, target), [])
        if packet[tcp + 13] & _SYN:
            begin = (number + 1) & 0xFFFFFFFF
            if not directions or directions[-1].begin != begin:
                directions.append(_Direction(begin))
            return
        payload = packet[tcp + (packet[tcp + 12] >> 4) * 4 : 14 + size]
        if payload:
            assert directions, "the capture has begun after the connection"
            position = (number - directions[-1].begin) & 0xFFFFFFFF
            directions[-1].parts.setdefault(position, payload)


def is_tls(data: bytes) -> bool:
    """Return True if all of the bytes are in TLS records, of which the last one may be cut off."""
    position = 0
    while position + 5 <= len(data):
        kind, version, size = struct.unpack_from(">BHH", data, position)
        if not (20 <= kind <= 23 and 0x0301 <= version <= 0x0303 and size <= _LARGEST_RECORD):
            return False
        position += 5 + size
    return True


def _filter(ports: Sequence[int]) -> list[tuple[int, int, int, int]]:
    """Return a packet filter for these TCP ports over IPv4: (instruction, jump if true, jump if false, operand)."""
    accept = 6 + 2 * len(ports) + 1
    drop = accept - 1
    program = [
        (_LOAD_2, 0, 0, 12),
        (_JUMP_IF_EQUAL, 0, drop - 2, 0x0800),  # IPv4
        (_LOAD_1, 0, 0, 23),
        (_JUMP_IF_EQUAL, 0, drop - 4, socket.IPPROTO_TCP),
    ]
    for at in (34, 36):  # the source and the target, after a header without options
        program.append((_LOAD_2, 0, 0, at))
        for port in ports:
            program.append((_JUMP_IF_EQUAL, accept - len(program) - 1, 0, port))
    return [*program, (_RETURN, 0, 0, 0), (_RETURN, 0, 0, _LARGEST)]


def _attach(raw: socket.socket, program: list[tuple[int, int, int, int]]) -> None:
    code = b"".join(struct.pack("HBBI", *one) for one in program)
    buffer = ctypes.create_string_buffer(code, len(code))
    raw.setsockopt(socket.SOL_SOCKET, _ATTACH_FILTER, struct.pack("HP", len(program), ctypes.addressof(buffer)))
