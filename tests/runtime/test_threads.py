"""Threads have names that system tools such as top show."""

import re
import threading
from pathlib import Path

import pytest

from kafkapy.runtime.threads import NoThread, Thread
from tests.harness.brokers import KafkapyBroker
from tests.harness.raw import Connection, values

SOURCES = Path(__file__).parents[2] / "kafkapy"
# Clients run in programs of other people, and Spark's workers are not the broker.
NOT_THE_BROKER = ("client", "spark", "arrow", "testing", "tools")


def comm(thread: threading.Thread) -> str:
    return Path(f"/proc/self/task/{thread.native_id}/comm").read_text().strip()


def shown_as(name: str) -> str:
    seen: list[str] = []
    thread = Thread(lambda: seen.append(comm(threading.current_thread())), name)
    thread.start()
    thread.join()
    return seen[0]


def test_a_name_is_shown_without_the_prefix_and_as_far_as_there_is_room() -> None:
    assert shown_as("kafkapy-network-0") == "network-0"
    assert shown_as("recovery-3-/var/lib/kafkapy") == "recovery-3-/var"


def test_a_name_that_cannot_be_shown_does_not_keep_the_thread_from_running(monkeypatch) -> None:
    ran = threading.Event()
    with monkeypatch.context() as patched:
        patched.setattr("kafkapy.runtime.threads.os.open", lambda *_: (_ for _ in ()).throw(PermissionError(13, "no")))
        thread = Thread(ran.set, "kafkapy-network-0")
        thread.start()
        thread.join()
    assert ran.is_set()


@pytest.mark.parametrize("refusal", [RuntimeError("can't start new thread"), MemoryError()])
def test_a_thread_that_the_system_refuses_is_an_error_of_its_own(monkeypatch, refusal) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise refusal

    monkeypatch.setattr(threading, "_start_new_thread", refuse)
    with pytest.raises(NoThread, match="kafkapy-disk-0"):
        Thread(print, "kafkapy-disk-0").start()


def test_each_thread_of_a_broker_has_a_name_of_its_own_in_top(tmp_path: Path) -> None:
    settings = {"kafkapy.metrics.listen": "127.0.0.1:0", "log.flush.interval.messages": "1"}
    broker = KafkapyBroker(tmp_path, settings)
    try:
        with Connection(broker.bootstrap) as connection:
            assert connection.create_topic("t") == 0
            assert connection.produce("t", 0, values(b"x"), version=7) == (0, 0)
        names = {
            int(task.name): (task / "comm").read_text().strip()
            for task in Path(f"/proc/{broker.process.child.pid}/task").iterdir()
        }
    finally:
        broker.stop()
    main = names.pop(broker.process.child.pid)
    expected = {"timer", "metadata", "metrics", "network-0", "acceptor", "scheduler-0", "disk-0", "append-0"}
    assert expected <= set(names.values())
    assert main not in names.values()


def test_no_thread_of_the_broker_is_started_without_a_name() -> None:
    found = [
        f"{path.relative_to(SOURCES)}: {line.strip()}"
        for path in SOURCES.rglob("*.py")
        if path.relative_to(SOURCES).parts[0] not in NOT_THE_BROKER and path.name != "threads.py"
        for line in path.read_text().splitlines()
        if re.search(r"\bthreading\.Thread\(|ThreadPoolExecutor|start_new_thread", line)
    ]
    assert found == []
