"""`kafkapy.Broker` in this process and as a child."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import kafkapy
from kafkapy.client import Admin, ClientError, Consumer, GroupConsumer, RecordProducer
from kafkapy.client.administration.admin import BROKER
from kafkapy.testing.broker import BrokerFailed


def roundtrip(broker, topic="t"):
    with RecordProducer(broker.bootstrap_servers) as producer:
        producer.send(topic, b"v")
    return read(broker, topic)


def read(broker, topic="t"):
    with Consumer(broker.bootstrap_servers) as consumer:
        consumer.assign_topic(topic)
        return [record.value for record in consumer.records()]


@pytest.mark.parametrize("process", [False, True])
def test_a_client_can_use_the_broker_and_its_directory_is_removed(process):
    with kafkapy.Broker(process=process, num_partitions=3) as broker:
        assert roundtrip(broker) == [b"v"]
        with Admin(broker.bootstrap_servers) as admin:
            assert len(admin.describe_topic("t").partitions) == 3
        assert broker.log_dir.is_dir()
        assert (broker.pid == os.getpid()) is not process
    assert not broker.log_dir.exists()


@pytest.mark.parametrize("process", [False, True])
def test_a_directory_given_by_the_caller_is_kept_with_its_contents(tmp_path, process):
    for times in (1, 2):
        with kafkapy.Broker(tmp_path, process=process) as broker:
            assert roundtrip(broker) == [b"v"] * times
    assert (tmp_path / "t-0" / "00000000000000000000.log").stat().st_size > 0


def test_settings_by_name_override_those_by_keyword():
    with kafkapy.Broker(config={"num.partitions": 2}, num_partitions=3) as broker:
        roundtrip(broker)
        with Admin(broker.bootstrap_servers) as admin:
            assert len(admin.describe_topic("t").partitions) == 2


@pytest.mark.parametrize("process", [False, True])
def test_by_default_groups_start_without_a_rebalance_delay(process):
    with kafkapy.Broker(process=process) as broker:
        assert setting(broker, "group.initial.rebalance.delay.ms") == "0"
        roundtrip(broker)
        with GroupConsumer(broker.bootstrap_servers, "g", auto_offset_reset="earliest") as consumer:
            consumer.subscribe(["t"])
            deadline = time.monotonic() + 30
            while not (records := consumer.poll(1)):
                assert time.monotonic() < deadline
        assert [record.value for record in records] == [b"v"]
    with kafkapy.Broker(group_initial_rebalance_delay_ms=7) as broker:
        assert setting(broker, "group.initial.rebalance.delay.ms") == "7"


def setting(broker, name):
    with Admin(broker.bootstrap_servers) as admin:
        admin.cluster.refresh([])
        (node,) = admin.cluster.brokers
        (found,) = admin.describe_configs(BROKER, str(node), [name])
    return found.value


def test_a_killed_child_loses_no_acknowledged_records(tmp_path):
    broker = kafkapy.Broker(tmp_path, process=True)
    with broker:
        roundtrip(broker)
        broker.kill()
        with pytest.raises(BrokerFailed, match="not running"):
            broker.bootstrap_servers  # noqa: B018 - the property raises
        broker.start()
        assert read(broker) == [b"v"]


def test_a_child_that_does_not_start_says_why(tmp_path):
    with pytest.raises(BrokerFailed, match=r"exit code 1.*num\.partitions=many"):
        kafkapy.Broker(tmp_path, process=True, num_partitions="many").start()


def test_a_child_that_died_raises_an_error_at_the_end(tmp_path):
    broker = kafkapy.Broker(tmp_path, process=True).start()
    os.kill(broker.pid, signal.SIGKILL)
    with pytest.raises(BrokerFailed, match="exit code -9"):
        broker.stop()


def test_a_child_is_killed_and_its_directory_removed_when_its_parent_exits_without_a_stop():
    parent = "import kafkapy; broker = kafkapy.Broker(process=True).start(); print(broker.pid, broker.log_dir)"
    output = subprocess.run([sys.executable, "-c", parent], capture_output=True, text=True, check=True).stdout
    pid, directory = output.split()
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid), signal.SIGKILL)  # and so it does not outlive the test either
    assert not Path(directory).exists()


def test_a_child_goes_on_when_a_process_that_its_parent_has_forked_exits():
    parent = (
        "import kafkapy, os, sys\n"
        "from kafkapy.client import Admin\n"
        "broker = kafkapy.Broker(process=True).start()\n"
        "if not (forked := os.fork()):\n"
        "    sys.exit()\n"
        "os.waitpid(forked, 0)\n"
        "with Admin(broker.bootstrap_servers) as admin:\n"
        "    admin.list_topics()\n"
    )
    subprocess.run([sys.executable, "-c", parent], check=True)


def test_only_a_running_child_can_be_killed():
    with pytest.raises(BrokerFailed, match="process=True"):
        kafkapy.Broker().kill()


def test_a_child_does_not_get_the_signals_of_the_terminal():
    with kafkapy.Broker(process=True) as broker:
        assert os.getsid(broker.pid) == broker.pid  # a session of its own, so Ctrl-C reaches only this process


def test_an_unknown_name_of_the_package_raises_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'Nonsense'"):
        kafkapy.Nonsense  # noqa: B018 - the lookup raises


@pytest.mark.parametrize("process", [False, True])
def test_a_broker_that_runs_is_not_started_again(process):
    with kafkapy.Broker(process=process).start() as broker:
        before = broker.pid, broker.bootstrap_servers
        assert broker.start() is broker
        assert (broker.pid, broker.bootstrap_servers) == before
        assert roundtrip(broker) == [b"v"]
    assert not broker.log_dir.exists()


@pytest.mark.parametrize("process", [False, True])
def test_a_start_that_fails_leaves_no_broker_behind(tmp_path, process):
    with pytest.raises(ClientError):  # an empty password is none
        kafkapy.Broker(tmp_path, process=process, users={"alice": ""}).start()
    with kafkapy.Broker(tmp_path) as broker:  # the directory is not locked
        assert roundtrip(broker) == [b"v"]
