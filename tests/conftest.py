"""What all tests have: an administration of the plugin's broker; and how several processes share them.

`scripts/test` runs two processes. A file is what one takes at a time; a folder whose tests share a broker, a cluster or
a Spark session goes to one as a whole, and those that take longest come first.
"""

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from kafkapy.client import Admin
from kafkapy.testing.broker import Broker

# Whole folders, those that take longest first.
_TOGETHER = ("interop", "spark", "zookeeper", "golden")
_LONG = (*_TOGETHER, "faults", "test_packaging.py", "tools", "testing")


def _group(nodeid: str) -> str:
    """What goes to one process: the path below tests, or its first part."""
    path = nodeid.partition("::")[0].removeprefix("tests/")
    first = path.partition("/")[0]
    return first if first in _TOGETHER else path


def _place(item: pytest.Item) -> int:
    first = _group(item.nodeid).partition("/")[0]
    return _LONG.index(first) if first in _LONG else len(_LONG)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if hasattr(config, "workerinput"):
        items.sort(key=_place)


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
