"""The sink `kafkapy` in processes that are killed, or whose broker is killed, at a moment that a test chooses.

A test orders a kill by a file `order` in a directory: {"id": ..., "moment": ..., "nth": ..., "victim": ...}. The first
process that reaches the moment for the nth time (counted in each process) takes the order and kills the victim.

Moments: task-request and driver-request (before a request to the broker), task-sent and driver-sent (after a request
was sent, before its response), task-left-open, before-decision, after-decision, between-ends, before-done, after-done.
"""

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceStreamArrowWriter

from kafkapy.client.connection import Connection
from kafkapy.client.producing.transactional_producer import TransactionalProducer
from kafkapy.spark.sink import epochs
from kafkapy.spark.sink.writers import stream_writer

_counted: dict[tuple[str, str], int] = {}
_watched: list[str] = []


class DyingSource(DataSource):
    """A data source with the options of `kafkapy` and one more: `moments`, the directory of orders."""

    @classmethod
    def name(cls) -> str:
        return "dying"

    def streamWriter(self, schema: Any, overwrite: bool) -> DataSourceStreamArrowWriter:
        options = {name: value for name, value in self.options.items() if name != "moments"}
        return DyingSink(stream_writer(options, schema, overwrite), self.options["moments"])


class DyingSink(DataSourceStreamArrowWriter):
    def __init__(self, sink: Any, directory: str) -> None:
        self._sink = sink
        self._directory = directory

    def write(self, iterator: Iterator[Any]) -> Any:
        watch("task", Path(self._directory))
        return self._sink.write(iterator)

    def commit(self, messages: Any, batchId: int) -> None:
        watch("driver", Path(self._directory))
        self._sink.commit(messages, batchId)

    def abort(self, messages: Any, batchId: int) -> None:
        self._sink.abort(messages, batchId)


def watch(role: str, directory: Path) -> None:
    """Patch this process so that it carries out orders from now on."""
    if _watched:
        return
    _watched.append(role)

    def around(function: Callable[..., Any], before: str | None, after: str | None) -> Callable[..., Any]:
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            if before:
                reach(directory, before)
            result = function(*args, **kwargs)
            if after:
                reach(directory, after)
            return result

        return wrapped

    def writing(options: Any, driver: Any, records: list[tuple[bytes, bytes | None]]) -> None:
        what = "decision" if b'"decided"' in (records[0][1] or b"") else "done"
        around(write, f"before-{what}", f"after-{what}")(options, driver, records)

    Connection.send = around(Connection.send, f"{role}-request", f"{role}-sent")  # type: ignore[method-assign]
    TransactionalProducer.leave_open = around(  # type: ignore[method-assign]
        TransactionalProducer.leave_open, None, "task-left-open"
    )
    write, epochs._write = epochs._write, writing
    epochs.end_transaction = around(epochs.end_transaction, None, "between-ends")


def reach(directory: Path, moment: str) -> None:
    """Carry out the order, if there is one for this moment."""
    order = directory / "order"
    try:
        wanted = json.loads(order.read_text())
    except (FileNotFoundError, ValueError):
        return
    if wanted["moment"] != moment:
        return
    key = wanted["id"], moment
    _counted[key] = _counted.get(key, 0) + 1
    if _counted[key] < wanted["nth"]:
        return
    try:
        order.rename(directory / f"taken-{wanted['id']}")
    except FileNotFoundError:
        return  # another process was faster
    kill(directory, wanted["victim"])


def kill(directory: Path, victim: str) -> None:
    """Kill the victim. A `broker` gets the signal that the test has chosen, while this process continues."""
    if victim == "nobody":
        return
    if victim == "broker":
        broker = json.loads((directory / "broker.pid").read_text())
        os.kill(broker["pid"], broker["signal"])
        return
    if victim == "driver":
        for pid in json.loads((directory / "driver").read_text()):
            _kill(pid)
    elif victim == "executor":
        _kill(_parent_of(os.getppid()))
    os.kill(os.getpid(), signal.SIGKILL)


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def _parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
