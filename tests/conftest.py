"""Fixtures of all tests, such as an admin client of the plugin's broker, and the order of tests in several processes.

`scripts/test` runs three processes, for two cores. Each takes one file at a time. Files whose tests share slow fixtures
go to one process together, and the files that take longest come first. Most of these start JVMs, and wait for them and
for each other much of the time. So two processes begin with them, and the third one with the other files, so that no
core is idle and no more JVMs run than with two processes.
"""

import gc
import logging
import signal
from collections.abc import Generator, Iterator
from typing import Any

import hypothesis
import pytest

from kafkapy.client import Admin
from kafkapy.testing.broker import Broker
from tests.harness import examples
from tests.harness.kafka_tools import KafkaTools

QUICK_SHARE = 0.2  # of the random examples of a full run

# Files that share clients of all languages, processes with group members of all languages, or a Spark session.
_TOGETHER = {
    "clients": ("interop/test_exchange.py", "interop/test_admin.py"),
    "members": ("interop/test_groups.py", "interop/test_mixed_groups.py"),
    "spark session": (
        "spark/test_load.py",
        "spark/test_sink_batch.py",
        "spark/test_sink_stream.py",
        "spark/test_source_spark.py",
    ),
    "oldest pyspark": ("spark/test_beside_own_source.py", "spark/test_own_source.py"),
}
_GROUPS = {path: group for group, paths in _TOGETHER.items() for path in paths}
# These groups, files and folders take longest, the longest first.
_SLOW = (
    "interop",
    "cluster",
    "spark",
    "zookeeper",
    "perf",
    "golden",
    "faults",
    "test_packaging.py",
    "tools",
    "testing",
)
_LONG = (*_TOGETHER, *_SLOW)
# Fixtures that start a JVM. Most of what needs another runtime is marked other_runtime, or has a client of another
# language as a parameter.
_JVM_FIXTURES = {"zookeeper", "secure", "spark_session", "oldest"}


# A shell that runs a command in the background without job control (`&` in a script, nohup, cron) starts it with SIGINT
# and SIGQUIT ignored. Processes inherit that, and Python then installs no KeyboardInterrupt handler: the tests that
# interrupt a child, or themselves, would wait forever.
for _number, _handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGQUIT, signal.SIG_DFL)):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, _handler)
# SIGTERM, which `timeout` sends, ends the tests like Ctrl-C: the fixtures then end the brokers.
signal.signal(signal.SIGTERM, signal.default_int_handler)


def _group(nodeid: str) -> str:
    """Return what goes to one process with this test: the path of its file below tests/, or the name of a group."""
    path = nodeid.partition("::")[0].removeprefix("tests/")
    return _GROUPS.get(path, path)


def _rank(group: str) -> int:
    """Return the position of the group in the order: len(_LONG) if it does not take long."""
    ranks = [rank for rank, long in enumerate(_LONG) if group == long or group.startswith(f"{long}/")]
    return min(ranks, default=len(_LONG))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--quick",
        action="store_true",
        help="leave out the tests that need Java, Go, Node.js or kcat, or are marked not_quick",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "other_runtime: needs Java (for Spark, ZooKeeper or Apache Kafka), Go, Node.js or kcat"
    )
    config.addinivalue_line(
        "markers", "not_quick: takes long (rounds of kills, builds of packages): not in the quick run"
    )
    if config.getoption("quick"):
        examples.share = QUICK_SHARE
    # No deadlines, and no complaint about slow strategies: on a busy machine both fail without a defect.
    hypothesis.settings.register_profile(
        "kafkapy",
        deadline=None,
        max_examples=examples.examples(100),
        suppress_health_check=[hypothesis.HealthCheck.too_slow],
    )
    hypothesis.settings.load_profile("kafkapy")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep the garbage collector away from the tests' own objects, which live until the end.

    Walking through those of 13,000 tests took a quarter of the CPU time of their collection, and a tenth of that of
    the tests.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("quick"):
        left_out = {item for item in items if item.get_closest_marker("not_quick") or _needs_other_runtime(item)}
        config.hook.pytest_deselected(items=list(left_out))
        items[:] = [item for item in items if item not in left_out]
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: _rank(_group(item.nodeid)))


def _needs_other_runtime(item: pytest.Item) -> bool:
    from tests.harness.clients.registry import OTHER_RUNTIMES  # imports clients of all kinds

    values = item.callspec.params.values() if isinstance(item, pytest.Function) and hasattr(item, "callspec") else ()
    return (
        item.get_closest_marker("other_runtime") is not None
        or not _JVM_FIXTURES.isdisjoint(getattr(item, "fixturenames", ()))
        or any(isinstance(value, str) and value in OTHER_RUNTIMES for value in values)
    )


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    from xdist.scheduler import LoadScopeScheduling

    class ByGroup(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return _group(nodeid)

        def _assign_work_unit(self, node: Any) -> None:
            nodes = self.nodes
            if len(nodes) > 2 and node is nodes[-1]:
                quick = next((group for group in self.workqueue if _rank(group) == len(_LONG)), None)
                if quick is not None:
                    self.workqueue.move_to_end(quick, last=False)
            super()._assign_work_unit(node)

    return ByGroup(config, log)


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    """Restore the logging configuration after each test: a command that runs in this process changes it for good."""
    logger = logging.getLogger("kafkapy")
    was = logger.level, logger.propagate, list(logger.handlers)
    yield
    level, logger.propagate, logger.handlers[:] = was
    logger.setLevel(level)


@pytest.fixture
def caplog(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    """pytest's caplog without what kafka-python logs: its clients of earlier tests may still log from their threads."""

    def of_others(record: logging.LogRecord) -> bool:
        return not record.name.startswith("kafka.")

    caplog.handler.addFilter(of_others)
    yield caplog
    caplog.handler.removeFilter(of_others)


@pytest.fixture
def admin(kafkapy_broker: Broker) -> Iterator[Admin]:
    with Admin(kafkapy_broker.bootstrap_servers) as admin:
        yield admin


@pytest.fixture(scope="module")
def tools() -> Iterator[KafkaTools]:
    """Start Kafka's command line tools, for the tests of one module."""
    running = KafkaTools()
    yield running
    running.close()
