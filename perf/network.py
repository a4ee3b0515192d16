"""Runs the process in a network namespace with a known TCP congestion control.

On some hosts the default is BBR, which also paces on loopback: responses of 64 KiB to 1 MiB are a fifth to a half
slower, and while consumers fetch large responses, a producer waits for hundreds of milliseconds, with any broker.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

IPV4 = Path("/proc/sys/net/ipv4")
CLONE_NEWNET = 0x40000000
SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x8913, 0x8914, 1
NEAR, FAR = "10.213.7.1", "10.213.7.2"  # the addresses of two_namespaces


class NoNamespaces(RuntimeError):
    """Network namespaces cannot be created here."""


def congestion_control() -> str:
    """Return the congestion control of new TCP sockets of this process."""
    return (IPV4 / "tcp_congestion_control").read_text().strip()


def enter_own(control: str) -> None:
    """Move this process, and the processes that it starts later, into a network namespace with only loopback and this
    congestion control.

    Call this before other threads start. Raise SystemExit with a message if it is not possible.
    """
    allowed = (IPV4 / "tcp_allowed_congestion_control").read_text().split()
    if control not in allowed:
        available = (IPV4 / "tcp_available_congestion_control").read_text().split()
        how = "allow it with sysctl net.ipv4.tcp_allowed_congestion_control" if control in available else "not known"
        raise SystemExit(f"perf: --congestion {control}: {how}; allowed here: {', '.join(allowed)}")
    try:
        _unshare()
    except PermissionError as error:
        reason = error.strerror
        raise SystemExit(f"perf: --congestion {control} needs root, to create a network namespace: {reason}") from None
    try:
        _raise_loopback()
        (IPV4 / "tcp_congestion_control").write_text(control)
    except OSError as error:
        raise SystemExit(f"perf: --congestion {control} cannot be set in the network namespace: {error}") from None


@contextmanager
def two_namespaces() -> Iterator[tuple[ThreadPoolExecutor, ThreadPoolExecutor]]:
    """Yield two executors of one thread each: the threads, and the processes that they start, are in two network
    namespaces, which a pair of veth devices connects. The second one has the address FAR.

    The namespaces end with their threads and processes. Raise NoNamespaces if they cannot be created.
    """
    control = congestion_control()
    with ThreadPoolExecutor(1, "near") as near, ThreadPoolExecutor(1, "far") as far:
        try:
            thread = near.submit(_move, control).result()
            far.submit(_move, control).result()
            far.submit(_ip, f"link add far type veth peer name near netns {thread}").result()
            for side, device, address in ((near, "near", NEAR), (far, "far", FAR)):
                side.submit(_ip, f"address add {address}/30 dev {device}").result()
                side.submit(_ip, f"link set {device} up").result()
        except OSError as error:
            raise NoNamespaces(f"this needs root and the command ip: {error}") from error
        yield near, far


def _move(control: str) -> int:
    """Move the calling thread into a new network namespace with this congestion control; return the thread's id."""
    _unshare()
    _raise_loopback()
    (IPV4 / "tcp_congestion_control").write_text(control)
    return threading.get_native_id()


def _ip(command: str) -> None:
    done = subprocess.run(["ip", *command.split()], capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"ip {command}: {done.stderr.strip()}")


def _unshare() -> None:
    if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNET):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _raise_loopback() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        asked = struct.pack("16sH14x", b"lo", 0)
        (flags,) = struct.unpack_from("H", fcntl.ioctl(any_socket, SIOCGIFFLAGS, asked), 16)
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", flags | IFF_UP))
