"""Runs the clients of a benchmark, each in a process of its own, so that they do not share Python's GIL."""

from __future__ import annotations

import json
import os
import pickle
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from kafkapy.tools.bench.board import Board
from kafkapy.tools.bench.jobs import Job
from kafkapy.tools.bench.worker import READY
from kafkapy.tools.common.errors import ToolError
from kafkapy.tools.common.interrupts import until_interrupted

_START_S = 60.0
_END_S = 70.0  # a client gives up after 60 s without a response
_LOOK_S = 0.1


class Ran(NamedTuple):
    """The figures of the clients, whether Ctrl-C ended them, and the error of the first client that failed."""

    board: Board
    interrupted: bool
    error: ToolError | None


def run(jobs: Sequence[Job], seconds: float | None, watch: Callable[[Board], None]) -> Ran:
    """Run the jobs to their end, or for `seconds`, or until Ctrl-C, or until one of them fails.

    `watch` is called with the figures about ten times a second. Raises ToolError if a client fails before it begins.
    """
    board = Board(len(jobs))
    try:
        with until_interrupted() as interrupted, _processes(jobs, board) as processes:
            _wait_until_ready(processes, interrupted.is_set)
            began = time.monotonic()
            for process in processes:
                _tell(process, b"go\n")
            ends_at: float | None = None
            while any(process.poll() is None for process in processes):
                now = time.monotonic()
                is_over = seconds is not None and now - began >= seconds
                if ends_at is None and (interrupted.is_set() or is_over or _failed(processes)):
                    board.stop()
                    ends_at = now + _END_S
                if ends_at is not None and now > ends_at:
                    break
                left = _LOOK_S if seconds is None or is_over else min(_LOOK_S, max(0.001, began + seconds - now))
                _wait(processes, left)
                watch(board)
            return Ran(board, interrupted.is_set(), _first_error(processes))
    finally:
        os.close(board.fd)


@contextmanager
def _processes(jobs: Sequence[Job], board: Board) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Start a process for each job. At the end of the block, kill those that still run."""
    started: list[subprocess.Popen[bytes]] = []
    try:
        for number, job in enumerate(jobs):
            words = [sys.executable, "-m", "kafkapy.tools.bench.worker"]
            process = subprocess.Popen(
                [*words, str(board.fd), str(len(jobs)), str(number)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                pass_fds=[board.fd],
                bufsize=0,
                start_new_session=True,  # Ctrl-C in a terminal reaches only the command
            )
            started.append(process)
            _tell(process, pickle.dumps(job))  # not as an argument, which all users can see: a job may have secrets
        yield started
    finally:
        for process in started:
            if process.poll() is None:
                process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    stream.close()


def _tell(process: subprocess.Popen[bytes], text: bytes) -> None:
    assert process.stdin is not None
    try:
        view = memoryview(text)
        while view:
            view = view[process.stdin.write(view) :]
    except BrokenPipeError:
        pass  # the process has failed, and its output says why


def _wait_until_ready(processes: Sequence[subprocess.Popen[bytes]], is_interrupted: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _START_S
    for process in processes:
        assert process.stdout is not None
        while not select.select([process.stdout], [], [], _LOOK_S)[0]:
            if is_interrupted():
                raise KeyboardInterrupt
            if time.monotonic() > deadline:
                raise ToolError(f"a client was not ready after {_START_S:.0f} s")
        line = process.stdout.readline()
        if line != READY:
            raise _error_of(line)


def _wait(processes: Sequence[subprocess.Popen[bytes]], seconds: float) -> None:
    """Wait until a process ends or prints something, at most `seconds`."""
    running = [process.stdout for process in processes if process.stdout is not None and process.poll() is None]
    if select.select(running, [], [], seconds)[0]:
        time.sleep(0.001)  # what is printed is read at the end; the process is about to end


def _failed(processes: Sequence[subprocess.Popen[bytes]]) -> bool:
    return any(process.poll() for process in processes)


def _first_error(processes: Sequence[subprocess.Popen[bytes]]) -> ToolError | None:
    for process in processes:
        if process.poll() is None:
            return ToolError(f"a client got no response and was ended after {_END_S:.0f} s")
        if process.returncode:
            assert process.stdout is not None
            return _error_of(process.stdout.readline())
    return None


def _error_of(line: bytes) -> ToolError:
    try:
        return ToolError(str(json.loads(line)["error"]))
    except (ValueError, KeyError, TypeError):
        return ToolError("a client ended without an error message; its output above may say why")
