"""A network of the run's own, with a TCP congestion control that is known.

Some hosts have BBR as default, which paces on loopback too: answers of 64 KiB to 1 MiB come a fifth to a half slower,
and a producer beside consumers of large answers waits for hundreds of milliseconds, whatever the broker is.
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
    """What new TCP sockets of this process get."""
    return (IPV4 / "tcp_congestion_control").read_text().strip()


def enter_own(control: str) -> None:
    """This process, and all it starts from now on, get a network with nothing but loopback and this control.

    To be called before there are other threads. SystemExit with a sentence when it cannot be done.
    """
    allowed = (IPV4 / "tcp_allowed_congestion_control").read_text().split()
    if control not in allowed:
        available = (IPV4 / "tcp_available_congestion_control").read_text().split()
        how = "allow it with sysctl net.ipv4.tcp_allowed_congestion_control" if control in available else "not known"
        raise SystemExit(
            f"perf: --congestion {control}: a network of its own may have {', '.join(allowed)} here; {control}: {how}"
        )
    if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNET):
        reason = os.strerror(ctypes.get_errno())
        raise SystemExit(f"perf: --congestion {control} needs root, to make a network of its own: {reason}")
    try:
        _raise_loopback()
        (IPV4 / "tcp_congestion_control").write_text(control)
    except OSError as error:
        raise SystemExit(f"perf: --congestion {control} cannot be set in the network of its own: {error}") from None


def _raise_loopback() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        asked = struct.pack("16sH14x", b"lo", 0)
        (flags,) = struct.unpack_from("H", fcntl.ioctl(any_socket, SIOCGIFFLAGS, asked), 16)
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", flags | IFF_UP))
