"""What all tests have: an administration of the plugin's broker; and how several processes share them.

`scripts/test` runs two processes. A file is what one takes at a time; a folder whose tests share a broker, a cluster or
a Spark session goes to one as a whole, and those that take longest come first.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkapy.client import Admin
from kafkapy.testing.broker import Broker

_HERE = Path(__file__).parent
# Whole folders, those that take longest first.
_TOGETHER = ("interop", "spark", "zookeeper", "golden")
_LONG = ("faults", "test_packaging.py", "tools", "testing")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.pluginmanager.hasplugin("xdist") or not hasattr(config, "workerinput"):
        return
    for item in items:
        parts = item.path.relative_to(_HERE).parts
        group = parts[0] if parts[0] in _TOGETHER else "/".join(parts)
        item.add_marker(pytest.mark.xdist_group(group))
    order = {name: place for place, name in enumerate(_TOGETHER + _LONG)}
    items.sort(key=lambda item: order.get(item.path.relative_to(_HERE).parts[0], len(order)))


@pytest.fixture
def admin(kafkapy_broker: Broker) -> Iterator[Admin]:
    with Admin(kafkapy_broker.bootstrap_servers) as admin:
        yield admin
