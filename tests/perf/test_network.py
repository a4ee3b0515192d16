"""A run in a network of its own."""

import os
import socket
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


def test_a_network_namespace_has_loopback_and_the_requested_control_or_says_what_is_missing() -> None:
    done = subprocess.run([sys.executable, "-c", OWN], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:  # without root, or if root has no right to it
        assert "perf: --congestion reno needs root" in done.stderr
        assert os.strerror(1) in done.stderr
    else:
        assert done.stdout == "reno\n"
    assert network.congestion_control()


def test_an_unknown_control_is_refused_with_a_list_of_the_allowed_ones() -> None:
    with pytest.raises(SystemExit, match=r"--congestion carrier-pigeon: not known; allowed here: \w+"):
        network.enter_own("carrier-pigeon")


def test_two_network_namespaces_reach_each_other() -> None:
    try:
        with network.two_namespaces() as (near, far):
            server = far.submit(socket.create_server, (network.FAR, 0)).result()
            with server, near.submit(socket.create_connection, server.getsockname(), 10).result() as client:
                assert client.getsockname()[0] == network.NEAR
            assert far.submit(os.readlink, "/proc/thread-self/ns/net").result() != os.readlink("/proc/self/ns/net")
    except network.NoNamespaces as error:
        pytest.skip(str(error))
