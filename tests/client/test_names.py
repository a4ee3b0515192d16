"""The names in kafkapy.client, and the error of those that need a library which is not installed."""

import pkgutil
import subprocess
import sys
from importlib import import_module

import pytest

import kafkapy.client
from kafkapy.client import ClientError


def failures(of: type[Exception]) -> set[type[Exception]]:
    below = of.__subclasses__()
    return {*below, *(each for one in below for each in failures(one))}


def test_every_name_that_is_listed_is_there():
    for name in kafkapy.client.__all__:
        assert getattr(kafkapy.client, name) is not None


def test_every_failure_that_a_client_raises_can_be_imported():
    for module in pkgutil.walk_packages(kafkapy.client.__path__, "kafkapy.client."):
        import_module(module.name)
    ours = {one for one in failures(ClientError) if one.__module__.startswith("kafkapy.client.")}
    missing = {one.__name__ for one in ours if getattr(kafkapy.client, one.__name__, None) is not one}
    assert missing == set()


def test_the_places_that_get_offsets_before_takes_can_be_imported():
    assert (kafkapy.client.LATEST, kafkapy.client.EARLIEST) == (-1, -2)


@pytest.mark.parametrize("names", ["ConsumerConnector", "Whitelist, ConsumerConnector"])
def test_without_kazoo_a_connector_says_what_to_install(names):
    script = f"import sys; sys.modules['kazoo'] = None\nfrom kafkapy.client import {names}"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("ImportError: ConsumerConnector needs the library kazoo: run pip install")
    assert ".[zookeeper]" in last


def test_without_kazoo_the_other_clients_are_there():
    script = (
        "import sys; sys.modules['kazoo'] = None\nfrom kafkapy.client import Producer, SimpleConsumer, OwnershipLost"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
