"""A driver that streams numbers 0, 1, 2, ... into a topic exactly once, like Spark but without Spark, so that many
rounds take little time: `python -m tests.faults.epochs_job ARGUMENTS`, with the arguments of sink_job.

The driver imitates Spark. Tasks run in worker processes that are reused, and are retried when a worker dies. Some tasks
run twice, and one of the two messages is dropped. The commit runs in its own process; if it fails, an abort follows. An
epoch is recorded before it runs and after its commit has returned. The next driver repeats an unfinished epoch. Workers
live a moment longer than their driver, like Spark's.
"""

import json
import multiprocessing
import os
import random
import sys
import uuid
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import pyarrow as pa

from kafkapy.client import Cluster
from kafkapy.spark.options.sink_options import SinkOptions, sink_options
from kafkapy.spark.sink.decisions import Share, ensure_decision_topic
from kafkapy.spark.sink.delivery import Written, write_exactly_once
from kafkapy.spark.sink.epochs import abort_epoch, commit_epoch
from tests.faults.dying_sink import watch

ATTEMPTS = 4  # most attempts of a task
WORKERS = 2
AGAIN = 0.2  # share of epochs with a task that runs twice


class Died(Exception):
    """Raised when a worker process has died."""


class Worker:
    """A process that runs functions, one at a time."""

    def __init__(self, role: str, directory: Path) -> None:
        context = multiprocessing.get_context("fork")
        self.connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, role, directory, os.getpid()), daemon=True)
        self._process.start()
        theirs.close()

    def send(self, function: Callable[..., Any], *args: Any) -> None:
        with suppress(OSError):  # receive() raises Died
            self.connection.send((function, args))

    def receive(self) -> Any:
        """Return the function's result. Raise RuntimeError if it failed, Died if the process died."""
        try:
            good, result = self.connection.recv()
        except (EOFError, OSError):
            self._process.join()
            raise Died from None
        if not good:
            raise RuntimeError(result)
        return result


def _serve(connection: Connection, role: str, directory: Path, driver: int) -> None:
    watch(role, directory)
    while True:
        while not connection.poll(0.05):
            if os.getppid() != driver:
                os._exit(0)
        function, args = connection.recv()
        try:
            answer = (True, function(*args))
        except Exception as error:
            answer = (False, repr(error))
        connection.send(answer)


class Driver:
    def __init__(self, wanted: dict[str, Any]) -> None:
        self._directory = Path(wanted["directory"])
        self._checkpoint = Path(wanted["checkpoint"])
        self._rows, self._tasks = wanted["rows"], wanted["tasks"]
        self._options = sink_options(
            {
                "kafka.bootstrap.servers": wanted["bootstrap"],
                "topic": wanted["topic"],
                "delivery": "exactly-once",
                "kafka.batch.size": "1000",
            }
        )
        with Cluster(wanted["bootstrap"]) as cluster:
            ensure_decision_topic(cluster, self._options.decision_topic)
        self._query = self._noted("query") or self._note("query", str(uuid.uuid4()))
        self._workers = [Worker("task", self._directory) for _ in range(WORKERS)]
        self._committer = Worker("driver", self._directory)

    def epoch(self) -> None:
        """Run the next epoch, or repeat the last one if its commit has not returned."""
        done = int(self._noted("done") or -1)
        epoch = int(self._note("begun", str(done + 1)))
        messages = self._write(epoch)
        shares = [message.share for message in messages if message.share is not None]
        known = any(message.decided for message in messages)
        if shares or known:
            try:
                self._committer.send(_commit, self._options, self._query, epoch, shares, known)
                self._committer.receive()
            except (Died, RuntimeError):
                self._committer = Worker("nobody", self._directory)
                self._committer.send(abort_epoch, self._options, self._query, epoch, shares)
                self._committer.receive()
                self._committer = Worker("driver", self._directory)
                raise
        self._note("done", str(epoch))

    def _write(self, epoch: int) -> list[Written]:
        """Run the tasks. Return the first message of each task."""
        messages: dict[int, Written] = {}
        waiting = list(range(self._tasks)) + ([0] if random.random() < AGAIN else [])
        attempts = dict.fromkeys(waiting, 0)
        busy: dict[Connection, tuple[Worker, int]] = {}
        idle = list(self._workers)
        while waiting or busy:
            while waiting and idle:
                worker, task = idle.pop(), waiting.pop()
                attempts[task] += 1
                assert attempts[task] <= ATTEMPTS + 1, f"task {task} fails again and again"
                worker.send(_write_numbers, self._options, self._query, epoch, task, self._tasks, self._rows)
                busy[worker.connection] = worker, task
            for each in wait(list(busy)):
                worker, task = busy.pop(each)  # type: ignore[index]
                try:
                    messages.setdefault(task, worker.receive())
                except Died:
                    self._workers.remove(worker)
                    worker = Worker("task", self._directory)
                    self._workers.append(worker)
                    waiting.append(task)
                except RuntimeError as error:
                    print("a task failed:", error, flush=True)
                    waiting.append(task)
                idle.append(worker)
        return list(messages.values())

    def _noted(self, name: str) -> str | None:
        try:
            return (self._checkpoint / name).read_text()
        except FileNotFoundError:
            return None

    def _note(self, name: str, text: str) -> str:
        self._checkpoint.mkdir(exist_ok=True)
        (self._checkpoint / "new").write_text(text)
        (self._checkpoint / "new").rename(self._checkpoint / name)
        return text


def _commit(options: SinkOptions, query: str, epoch: int, shares: list[Share], known: bool) -> None:
    commit_epoch(options, query, epoch, shares, known=known)


def _write_numbers(options: SinkOptions, query: str, epoch: int, task: int, tasks: int, rows: int) -> Written:
    numbers = range(epoch * rows + task, (epoch + 1) * rows, tasks)
    column = pa.array([str(number) for number in numbers])
    batch = pa.record_batch({"key": column, "value": column})
    return write_exactly_once(options, query, epoch, (batch.slice(at, 10) for at in range(0, batch.num_rows, 10)))


def main() -> None:
    wanted = json.loads(sys.argv[1])
    directory = Path(wanted["directory"])
    driver = Driver(wanted)
    (directory / "driver.new").write_text(json.dumps([os.getpid()]))
    (directory / "driver.new").rename(directory / "driver")
    print("ready", flush=True)
    # The last driver finishes two epochs. The first may be one that an earlier driver had finished without aborting its
    # left-over transactions. The second epoch aborts these.
    left = 2 if wanted["last"] else None
    while left != 0:
        try:
            driver.epoch()
            if left is not None:
                left -= 1
        except (Died, RuntimeError) as error:
            print("failed", repr(error), flush=True)


if __name__ == "__main__":
    main()
