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
from pathlib import Path

IPV4 = Path("/proc/sys/net/ipv4")
CLONE_NEWNET = 0x40000000
SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x8913, 0x8914, 1


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
    if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNET):
        reason = os.strerror(ctypes.get_errno())
        raise SystemExit(f"perf: --congestion {control} needs root, to create a network namespace: {reason}")
    try:
        _raise_loopback()
        (IPV4 / "tcp_congestion_control").write_text(control)
    except OSError as error:
        raise SystemExit(f"perf: --congestion {control} cannot be set in the network namespace: {error}") from None


def _raise_loopback() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        asked = struct.pack("16sH14x", b"lo", 0)
        (flags,) = struct.unpack_from("H", fcntl.ioctl(any_socket, SIOCGIFFLAGS, asked), 16)
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", flags | IFF_UP))
