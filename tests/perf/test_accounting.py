"""CPU time and affinity of a process tree, and the bytes that bare loops move."""

import os
import socket
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from perf import shares
from perf.bare import ANSWER, CHUNK, bare_loop
from perf.cpu import cpu_seconds, pinned, resident_bytes, tree, used
from perf.measurement import Bench
from perf.processes import Child
from perf.raw_client import RawClient

BURN = "import time\nwhile time.process_time() < 0.15: pass\n"
SHELL = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {BURN!r}]); print(flush=True); sys.stdin.read()"


def test_cpu_time_includes_ended_children_and_excludes_the_caller() -> None:
    parent = subprocess.Popen([sys.executable, "-c", SHELL], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert parent.stdin
    assert parent.stdout
    try:
        with used(parent.pid) as usage:
            parent.stdout.readline()
        assert usage.cpu >= 0.14
        assert usage.wall >= 0.15
        assert cpu_seconds(parent.pid) >= usage.cpu
        assert tree(parent.pid) == [parent.pid]
        assert parent.pid in tree(os.getpid())
        assert resident_bytes(parent.pid) > 1 << 20
    finally:
        parent.communicate()


def test_cpu_time_is_not_rounded_to_clock_ticks() -> None:
    for _ in range(5):
        with used(os.getpid()) as usage:
            end = time.process_time() + 0.001
            while time.process_time() < end:
                pass
        assert usage.cpu >= 0.001


def test_pinning_ends_with_the_block() -> None:
    before = os.sched_getaffinity(0)
    one = {min(before)}
    with pinned(os.getpid(), one, one):
        assert os.sched_getaffinity(0) == one
    assert os.sched_getaffinity(0) == before


def test_several_processes_are_measured_together() -> None:
    shells = [
        subprocess.Popen([sys.executable, "-c", SHELL], stdin=subprocess.PIPE, stdout=subprocess.PIPE) for _ in "ab"
    ]
    try:
        with used(*(shell.pid for shell in shells)) as usage:
            for shell in shells:
                assert shell.stdout
                shell.stdout.readline()
        assert usage.cpu >= 0.28
    finally:
        for shell in shells:
            shell.communicate()


@pytest.mark.parametrize("how", ["receive", "follow"])
def test_the_receiving_loops_write_every_byte(bench: Bench, how: str) -> None:
    block = os.urandom(300_000)
    with bench.data() as path:
        with bare_loop(how, path / "bare") as (_, port), socket.create_connection(("127.0.0.1", port)) as client:
            for _ in range(7):
                client.sendall(block)
            client.shutdown(socket.SHUT_WR)
            assert client.recv(1) == b""
        assert (path / "bare").read_bytes() == block * 7
    assert not path.exists()


@pytest.mark.parametrize("how", ["sendfile", "copy"])
def test_the_sending_loops_send_the_requested_part(bench: Bench, how: str) -> None:
    with bench.data() as path:
        (path / "bare").write_bytes(bytes(CHUNK) + b"\x01" * (CHUNK + 7))
        with bare_loop(how, path / "bare") as (_, port), RawClient(port) as client:
            client.socket.sendall(struct.pack(">qq", CHUNK, CHUNK + 7))
            assert client.socket.recv(CHUNK + 7, socket.MSG_WAITALL) == b"\x01" * (CHUNK + 7)


def test_the_echo_answers_each_frame(bench: Bench) -> None:
    frame = struct.pack(">i", 10) + bytes(10)
    with bench.data() as path, bare_loop("echo", path / "bare") as (_, port), RawClient(port) as client:
        client.socket.sendall(frame * 3 + frame[:5])
        client._read_into(memoryview(bytearray(3 * len(ANSWER))))
        client.socket.sendall(frame[5:])
        client._read_into(memoryview(bytearray(len(ANSWER))))


def test_a_paced_client_ends_when_it_is_told_to(bench: Bench) -> None:
    frame = struct.pack(">i", 10) + bytes(10)
    reading, writing = os.pipe()
    with bench.data() as path, bare_loop("echo", path / "bare") as (_, port), RawClient(port) as client:
        latencies, lateness = client.pace(frame, len(ANSWER), 1000, 0.05, reading)
        assert len(latencies) == len(lateness) == 50
        os.close(writing)
        latencies, lateness = client.pace(frame, len(ANSWER), 1000, 60, reading)
        assert 1 <= len(latencies) == len(lateness) < 60_000
    os.close(reading)


def test_the_busiest_thread_of_a_client_is_found() -> None:
    burnt, looked = threading.Event(), threading.Event()

    def burn() -> None:
        while time.thread_time() < 0.1:
            pass
        burnt.set()
        looked.wait()

    first = shares.look(os.getpid(), os.getpid())
    burner = threading.Thread(target=burn)
    burner.start()
    burnt.wait()
    last = shares.look(os.getpid(), os.getpid())
    looked.set()
    burner.join()
    found = shares.shares("key", first, last)
    assert set(found) == {row.key for row in shares.rows("key", "label")}
    assert 0 < found["key.busiest"] <= found["key.client"]
    assert found["key.idle"] <= max(0, 100 - found["key.busiest"]) + 0.01


def test_the_share_of_a_client_of_one_thread_is_its_cpu_time_in_the_time_of_the_block(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr("perf.shares.time.perf_counter", iter([10.0, 12.0]).__next__)
        patched.setattr("perf.shares.time.thread_time", iter([1.0, 1.5]).__next__)
        with shares.this_thread() as thread:
            pass
    assert thread.percent == 25.0


def test_a_child_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    stubborn = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); signal.pause()"
    child = Child([sys.executable, "-c", stubborn], tmp_path / "out", keep_stdout=True)
    assert child.process.stdout
    child.process.stdout.readline()
    child.stop(timeout=0.05)
    assert child.process.returncode == -9
