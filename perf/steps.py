"""`python -m perf.steps`: prints what a small produce and a plain fetch cost a broker, step by step, in microseconds.

A broker in this process serves a client in another process, which has one request in flight. A clock wraps the
functions that handle a request and measures the own time of each (the median), without the functions that it calls and
without the clocks. The rest of the thread's CPU time is "everything else": the loop, falling asleep and waking up. For
comparison, the column "bare" has the system calls of such a request alone, on another connection and file.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import select
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

from kafkapy._ext import residency, syscalls
from kafkapy.log import partition_log
from kafkapy.network import connection, receive, sends
from kafkapy.protocol.apis import FETCH as FETCH_API
from kafkapy.protocol.apis import PRODUCE as PRODUCE_API
from kafkapy.replica import fetch as replica_fetch
from kafkapy.replica import partition as replica_partition
from kafkapy.server import dispatcher
from kafkapy.server.api_table import TABLE
from kafkapy.server.handlers import fetch
from kafkapy.server.producing import gather as produce_gather
from kafkapy.testing.broker import Broker
from perf import frames, markdown
from perf.closed_loop import closed_loop
from perf.machine import describe
from perf.raw_client import RawClient

PRODUCE, FETCH = "produce of one record of 100 B", "fetch of one such batch"
POLL, REST = "epoll_wait without waiting", "everything else"
# The module or class in which the broker looks up a name, the name, and the label of the step.
STEPS: tuple[tuple[Any, str, str], ...] = (
    (syscalls, "epoll_wait", POLL),
    (connection, "recv_into", "receive: recv"),
    (receive.Receiver, "receive", "receive: split into frames"),
    (TABLE.find(PRODUCE_API.key), "decode", "decode"),
    (TABLE.find(FETCH_API.key), "decode", "decode"),
    (dispatcher.Dispatcher, "handle", "find the handler, metrics"),
    (TABLE.find(PRODUCE_API.key), "handler", "produce: gather by partition"),
    (replica_partition.Partition, "append", "append: partition"),
    (partition_log.PartitionLog, "append", "append: check, offsets, indexes"),
    (syscalls, "pwritev", "append: pwritev"),
    (TABLE.find(FETCH_API.key), "handler", "fetch: session, plan"),
    (replica_fetch.FetchPlan, "read", "fetch: find the bytes"),
    (produce_gather, "encode_produce_response", "encode"),
    (fetch, "encode_fetch_response", "encode"),
    (sends.Sender, "flush", "send: choose the method"),
    (residency, "read_now", "send: preadv2 of the batch"),
    (syscalls, "sendmsg", "send: sendmsg"),
)


class Clock:
    """Own times of wrapped functions of one thread, in nanoseconds."""

    def __init__(self) -> None:
        self.own: dict[str, list[int]] = {}  # label -> time of each call
        self._inner: list[int] = []  # for each active call, the time of the calls that it has made
        self._undo: list[tuple[Any, str, Any]] = []
        self._within = self._around = 0  # what a clock adds to its own time, and what it adds to its caller's
        self._calibrate()

    def wrap(self, label: str, function: Callable[..., Any]) -> Callable[..., Any]:
        kept = self.own.setdefault(label, [])
        inner, now = self._inner, time.perf_counter_ns

        def clocked(*args: Any, **kwargs: Any) -> Any:
            if label == POLL and args[1]:
                return function(*args)  # it waits, so it is not measured
            inner.append(0)
            began = now()
            try:
                return function(*args, **kwargs)
            finally:
                took = now() - began
                kept.append(took - inner.pop() - self._within)
                if inner:
                    inner[-1] += took + self._around

        return clocked

    def _calibrate(self) -> None:
        times = 10_000
        nothing = self.wrap("nothing", lambda: None)
        began = time.perf_counter_ns()
        for _ in range(times):
            nothing()
        both = (time.perf_counter_ns() - began) // times
        within = int(median(self.own.pop("nothing")))
        self._within, self._around = within, max(0, both - within)

    def install(self) -> None:
        for place, name, label in STEPS:
            function = getattr(place, name)
            self._undo.append((place, name, function))
            setattr(place, name, self.wrap(label, function))

    def restore(self) -> None:
        while self._undo:
            setattr(*self._undo.pop())

    def reset(self) -> None:
        for kept in self.own.values():
            kept.clear()

    def steps(self, count: int, spent_ns: int) -> dict[str, float]:
        """Return step -> µs per request, for `count` requests that took `spent_ns` of the thread's CPU time."""
        found = {label: max(0.0, median(own)) * len(own) / count / 1e3 for label, own in self.own.items() if own}
        clocks = sum(map(len, self.own.values())) * (self._within + self._around)
        found[REST] = max(0.0, (spent_ns - clocks) / count / 1e3 - sum(found.values()))
        return found


def broker_steps(count: int) -> dict[str, dict[str, float]]:
    """Measure a broker; return kind of request -> step -> µs per request."""
    found: dict[str, dict[str, float]] = {}
    clock = Clock()
    with ExitStack() as ending:
        directory = ending.enter_context(tempfile.TemporaryDirectory(prefix="kafkapy-steps-"))
        others = ending.enter_context(ProcessPoolExecutor(1, multiprocessing.get_context("spawn")))
        ending.callback(clock.restore)
        clock.install()  # before the broker's objects store references to the functions
        others_before = threading.enumerate()
        broker = ending.enter_context(Broker(Path(directory)))
        port = int(broker.bootstrap_servers.rpartition(":")[2])
        with RawClient(port) as client:
            client.create_topic("steps")
        thread = next(one for one in threading.enumerate() if one not in others_before and "network-0" in one.name)
        for what in (PRODUCE, FETCH):
            others.submit(ask, port, what, max(1, count // 4)).result()
            clock.reset()
            before = _cpu_ns(thread)
            others.submit(ask, port, what, count).result()
            found[what] = clock.steps(count, _cpu_ns(thread) - before)
    return found


def ask(port: int, what: str, count: int) -> None:
    """Send one request after the other; runs in a separate process."""
    batch = frames.batch(frames.plain_values(100, 1))
    with RawClient(port) as client:
        if what == PRODUCE:
            closed_loop([client], [frames.produce("steps", batch, 1)], count)
        else:
            fetch = frames.FetchFrame("steps", len(batch))
            closed_loop([client], [bytes(fetch.at(0))], count, [fetch.head + len(batch)])


def _cpu_ns(thread: threading.Thread) -> int:
    """Return the CPU time of a thread of this process."""
    return int(Path(f"/proc/self/task/{thread.native_id}/schedstat").read_text().split()[0])


def bare_calls(count: int) -> dict[str, dict[str, float]]:
    """Measure the system calls that every broker needs; return the same as `broker_steps`."""
    with ExitStack() as ending:
        server = ending.enter_context(socket.create_server(("127.0.0.1", 0)))
        client = ending.enter_context(socket.create_connection(server.getsockname()))
        accepted = ending.enter_context(server.accept()[0])
        file = ending.enter_context(tempfile.TemporaryFile())
        poller = select.epoll()
        ending.callback(poller.close)
        for one in (client, accepted):
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        accepted.setblocking(False)
        poller.register(accepted.fileno(), select.EPOLLIN | select.EPOLLET)
        return {
            what: _bare(what, count, client, accepted.fileno(), file.fileno(), poller.fileno())
            for what in (PRODUCE, FETCH)
        }


def _bare(what: str, count: int, client: socket.socket, accepted: int, disk: int, poller: int) -> dict[str, float]:
    batch = frames.batch(frames.plain_values(100, 1))
    fetch = frames.FetchFrame("steps", len(batch))
    buffer = bytearray(65536)
    calls: dict[str, Callable[[], object]] = {
        POLL: lambda: syscalls.epoll_wait(poller, 0),
        "receive: recv": lambda: syscalls.recv_into(accepted, buffer, 0, len(buffer)),
    }
    if what == PRODUCE:
        frame, parts = frames.produce("steps", batch, 1), [memoryview(buffer)[:60]]
        calls["append: pwritev"] = lambda: syscalls.pwritev(disk, [batch], 0)
    else:
        frame, parts = bytes(fetch.at(0)), [memoryview(buffer)[: fetch.head], memoryview(buffer)[: len(batch)]]
        calls["send: preadv2 of the batch"] = lambda: residency.read_now(disk, buffer, 0, len(batch), 0)
    calls["send: sendmsg"] = lambda: syscalls.sendmsg(accepted, parts, 0, len(parts))
    took: dict[str, list[int]] = {name: [] for name in calls}
    for _ in range(count):
        client.sendall(frame)
        for name, call in calls.items():
            began = time.perf_counter_ns()
            call()
            took[name].append(time.perf_counter_ns() - began)
        client.recv(sum(map(len, parts)), socket.MSG_WAITALL)
    return {name: median(times) / 1e3 for name, times in took.items()}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser("python -m perf.steps", description=__doc__.partition("\n")[0])
    parser.add_argument("--requests", type=int, default=20_000, help="number of each kind (%(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="a JSON file for python -m perf.publish")
    options = parser.parse_args(arguments)
    broker, bare = broker_steps(options.requests), bare_calls(options.requests)
    print(table(broker, bare))
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        result = {"machine": describe(Path(tempfile.gettempdir())), "steps": {"broker": broker, "bare": bare}}
        options.json.write_text(json.dumps(result, indent=1) + "\n")
    return 0


def table(broker: dict[str, dict[str, float]], bare: dict[str, dict[str, float]]) -> str:
    """Return a Markdown table with a row for each step: µs of the broker and of the bare call, for each request."""
    labels = [*dict.fromkeys(label for _, _, label in STEPS), REST]
    both = [of[what] for what in broker for of in (broker, bare)]
    lines = [
        [label, *(_cell(steps.get(label)) for steps in both)]
        for label in labels
        if any(label in steps for steps in broker.values())
    ]
    lines.append(["**all**", *(_cell(sum(steps.values())) for steps in both)])
    return markdown.table(["step, µs", *(head for what in broker for head in (what, "bare"))], lines)


def _cell(figure: float | None) -> str:
    return "" if figure is None else f"{figure:.1f}"


if __name__ == "__main__":
    sys.exit(main())
