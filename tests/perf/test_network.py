"""A run in a network of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from perf import network

ROOT = Path(__file__).parents[2]
OWN = """
import socket
from perf import network
network.enter_own("reno")
with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()):
    print(network.congestion_control())
"""


def test_a_network_of_its_own_has_loopback_and_the_control_asked_for_or_says_what_is_missing() -> None:
    done = subprocess.run([sys.executable, "-c", OWN], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:  # not as root, or where root may not either
        assert "perf: --congestion reno needs root" in done.stderr
        assert os.strerror(1) in done.stderr
    else:
        assert done.stdout == "reno\n"
    assert network.congestion_control()


def test_a_control_that_is_not_there_is_refused_with_those_that_are() -> None:
    with pytest.raises(SystemExit, match=r"--congestion carrier-pigeon: .* may have \w+.*carrier-pigeon: not known"):
        network.enter_own("carrier-pigeon")
