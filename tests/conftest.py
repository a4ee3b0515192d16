"""What all tests have: an administration of the plugin's broker; and how several processes share them.

`scripts/test` runs two processes. A file is what one takes at a time; a folder whose tests share a broker, a cluster or
a Spark session goes to one as a whole, and those that take longest come first.
"""

import logging
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from kafkapy.client import Admin
from kafkapy.testing.broker import Broker

# Whole folders, those that take longest first.
_TOGETHER = ("interop", "spark", "zookeeper", "golden")
_OTHER_RUNTIMES = ("interop", "spark", "zookeeper")
_LONG = (*_TOGETHER, "faults", "test_packaging.py", "tools", "testing")


# A shell that runs a command in the background without job control (`&` in a script, nohup, cron) starts it with SIGINT
# and SIGQUIT ignored. Processes inherit that, and Python then installs no KeyboardInterrupt handler: the tests that
# interrupt a child, or themselves, would wait for ever.
for _number, _handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGQUIT, signal.SIG_DFL)):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, _handler)


def _group(nodeid: str) -> str:
    """What goes to one process: the path below tests, or its first part."""
    path = nodeid.partition("::")[0].removeprefix("tests/")
    first = path.partition("/")[0]
    return first if first in _TOGETHER else path


def _place(item: pytest.Item) -> int:
    first = _group(item.nodeid).partition("/")[0]
    return _LONG.index(first) if first in _LONG else len(_LONG)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--quick", action="store_true", help="leave out the tests that need Java, Go or Node.js")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "other_runtime: needs Java (for Spark, ZooKeeper or Apache Kafka), Go or Node.js"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("quick"):
        kept = [item for item in items if not _needs_other_runtime(item)]
        config.hook.pytest_deselected(items=[item for item in items if _needs_other_runtime(item)])
        items[:] = kept
    if hasattr(config, "workerinput"):
        items.sort(key=_place)


def _needs_other_runtime(item: pytest.Item) -> bool:
    folder = item.nodeid.removeprefix("tests/").partition("/")[0]
    return folder in _OTHER_RUNTIMES or item.get_closest_marker("other_runtime") is not None


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    from xdist.scheduler import LoadScopeScheduling

    class ByGroup(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return _group(nodeid)

    return ByGroup(config, log)


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    """A command that runs in this process sets up the log for good; the next test's is not to be its."""
    logger = logging.getLogger("kafkapy")
    was = logger.level, logger.propagate, list(logger.handlers)
    yield
    level, logger.propagate, logger.handlers[:] = was
    logger.setLevel(level)


@pytest.fixture
def admin(kafkapy_broker: Broker) -> Iterator[Admin]:
    with Admin(kafkapy_broker.bootstrap_servers) as admin:
        yield admin
