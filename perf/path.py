"""`python -m perf.path`: prints the functions that serve a small produce request, in the order of their calls.

A broker in this process serves a client that has one request in flight. A tracer (sys.setprofile) records the calls of
its network thread during one turn of the loop, from one poll for events to the next. It does not record calls of C
functions.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
from contextlib import ExitStack
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

from kafkapy.network.processor import Processor
from kafkapy.testing.broker import Broker
from perf import frames
from perf.raw_client import RawClient

_THREAD = "kafkapy-network-0"
_BEGIN = Processor._poll.__code__  # its call begins a turn
_HANDLER = "produce"  # a turn with a call of it serves a request
_WARM_UP = 200  # requests before the examined ones
_TURNS = 50


class Call(NamedTuple):
    """A call of a Python function, `depth` calls below the loop."""

    depth: int
    module: str
    function: str


class Turns:
    """A profile function (sys.setprofile) that keeps the calls of each turn."""

    def __init__(self) -> None:
        self.all: list[list[Call]] = []
        self._depth = 0

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            if frame.f_code is _BEGIN:
                self.all.append([])
                self._depth = 0
            if self.all:
                name = getattr(frame.f_code, "co_qualname", frame.f_code.co_name)  # the qualified one since Python 3.11
                self.all[-1].append(Call(self._depth, str(frame.f_globals.get("__name__")), name))
            self._depth += 1
        elif event == "return":
            self._depth -= 1


def path_of_produce(acks: int = 1) -> list[Call]:
    """Return the calls of the shortest turn that serves a produce request: one that adds no index entry."""
    turns = Turns()

    def begin(*_: Any) -> None:
        """Trace the network thread, and no other. Called at the first event of each new thread."""
        sys.setprofile(turns if threading.current_thread().name == _THREAD else None)

    threading.setprofile(begin)
    with ExitStack() as ending:
        ending.callback(threading.setprofile, None)
        directory = ending.enter_context(tempfile.TemporaryDirectory(prefix="kafkapy-path-"))
        broker = ending.enter_context(Broker(Path(directory)))
        client = ending.enter_context(RawClient(int(broker.bootstrap_servers.rpartition(":")[2])))
        client.create_topic("path")
        request = frames.produce("path", frames.batch(frames.plain_values(100, 1)), acks)
        for _ in range(_WARM_UP + _TURNS):
            client.produce_once(request)
    serving = [turn for turn in turns.all if any(call.function == _HANDLER for call in turn)]
    return min(serving[-_TURNS:], key=len)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser("python -m perf.path", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--acks", type=int, default=1, choices=(-1, 1), help="acks of the request (%(default)s)")
    calls = path_of_produce(parser.parse_args(arguments).acks)
    for call in calls:
        print(f"{'  ' * call.depth + call.function:70} {call.module}")
    functions, modules = {call[1:] for call in calls}, {call.module for call in calls}
    print(f"{len(calls)} calls of {len(functions)} functions in {len(modules)} modules")
    return 0


if __name__ == "__main__":
    sys.exit(main())
