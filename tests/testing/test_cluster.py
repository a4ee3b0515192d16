"""`kafkapy.Cluster`: brokers in processes of their own, with a ZooKeeper."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import kafkapy
from kafkapy.client import Admin, Consumer, RecordProducer
from kafkapy.testing.broker import BrokerFailed
from kafkapy.testing.zookeeper import DEBIAN_JARS, JARS_VARIABLE, ZooKeeperFailed, class_path, reserve_port
from tests.harness.waiting import eventually
from tests.harness.zookeeper import ZooKeeper, jars_in


@pytest.fixture(scope="module")
def jars(tmp_path_factory):
    return jars_in(tmp_path_factory.mktemp("jars") / "libs")


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory):
    server = ZooKeeper(tmp_path_factory.mktemp("zookeeper"))
    yield server
    server.stop()


@pytest.fixture
def no_jars(monkeypatch):
    monkeypatch.delenv(JARS_VARIABLE, raising=False)


def runs(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def values(servers, topic):
    with Consumer(servers) as consumer:
        consumer.assign_topic(topic)
        return [record.value for record in consumer.records()]


def in_sync(servers, topic):
    with Admin(servers) as admin:
        return sorted(admin.describe_topic(topic).partitions[0].isr)


@pytest.mark.other_runtime
def test_brokers_are_killed_stopped_and_started_again_and_nothing_is_left_at_the_end(jars):
    with kafkapy.Cluster(3, zookeeper_jars=jars) as cluster:
        pids = [cluster.broker(number).pid for number in cluster.running]
        address = cluster.broker(3).bootstrap_servers
        assert cluster.running == [1, 2, 3]
        assert len(set(pids)) == len(set(cluster.bootstrap_servers.split(","))) == 3
        with Admin(cluster.bootstrap_servers) as admin:
            assert sorted(admin.create_topic("t", 1).partitions[0].replicas) == [1, 2, 3]
        with RecordProducer(cluster.bootstrap_servers) as producer:
            producer.send("t", b"v")

        killed = cluster.controller_id
        cluster.kill(killed)
        assert killed not in cluster.running
        assert cluster.controller_id != killed
        assert values(cluster.bootstrap_servers, "t") == [b"v"]
        cluster.start(killed)
        eventually(lambda: in_sync(cluster.bootstrap_servers, "t") == [1, 2, 3])

        cluster.stop(3)
        assert in_sync(cluster.bootstrap_servers, "t") == [1, 2]  # a broker that stops leaves the ISR first
        cluster.start(3)
        cluster.restart(3)
        assert cluster.broker(3).bootstrap_servers == address
        pids += [cluster.broker(number).pid for number in cluster.running]
        pids.append(cluster._server._child.pid)
        assert cluster.directory.is_dir()
    assert not any(map(runs, pids))
    assert not cluster.directory.exists()
    with pytest.raises(BrokerFailed, match="No broker of the cluster is running"):
        cluster.bootstrap_servers  # noqa: B018 - the property raises


@pytest.mark.other_runtime
def test_nothing_is_left_when_the_parent_exits_without_a_stop(jars):
    parent = (
        "import sys, kafkapy\n"
        "cluster = kafkapy.Cluster(1, zookeeper_jars=sys.argv[1]).start()\n"
        "print(cluster.broker(1).pid, cluster._server._child.pid, cluster.directory)"
    )
    command = [sys.executable, "-c", parent, str(jars)]
    *pids, directory = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)
    assert not Path(directory).exists()


def test_clusters_share_a_running_zookeeper_by_chroots(zookeeper, no_jars):
    with (
        kafkapy.Cluster(1, zookeeper=f"{zookeeper.address}/one") as one,
        kafkapy.Cluster(1, zookeeper=f"{zookeeper.address}/two") as two,
    ):
        for cluster in (one, two):
            with Admin(cluster.bootstrap_servers) as admin:
                assert [broker.node_id for broker in admin.describe_cluster().brokers] == [1]


def test_a_directory_given_by_the_caller_is_kept_for_the_next_cluster(zookeeper, tmp_path):
    chroot = f"{zookeeper.address}/kept"
    for times in (1, 2):
        with kafkapy.Cluster(1, zookeeper=chroot, directory=tmp_path, config={"num.partitions": 2}) as cluster:
            with RecordProducer(cluster.bootstrap_servers) as producer:
                producer.send("t", b"v", partition=1)
            assert values(cluster.bootstrap_servers, "t") == [b"v"] * times


def test_a_broker_that_does_not_start_ends_the_others_and_says_why(zookeeper):
    cluster = kafkapy.Cluster(2, zookeeper=f"{zookeeper.address}/broken", num_partitions="many")
    with pytest.raises(BrokerFailed, match=r"num\.partitions=many"):
        cluster.start()
    assert cluster.running == []
    assert not cluster.directory.exists()


def test_a_wrong_broker_or_a_wrong_state_of_it_is_named(zookeeper):
    with kafkapy.Cluster(1, zookeeper=f"{zookeeper.address}/states") as cluster:
        with pytest.raises(BrokerFailed, match="Broker 2 is not one of 1 to 1"):
            cluster.start(2)
        with pytest.raises(BrokerFailed, match="Broker 1 is running already"):
            cluster.start(1)
        cluster.kill(1)
        for call in (cluster.kill, cluster.stop, cluster.restart):
            with pytest.raises(BrokerFailed, match="Broker 1 is not running; running: none"):
                call(1)
    with pytest.raises(ValueError, match="at least one broker, not 0"):
        kafkapy.Cluster(0)


def test_without_zookeeper_the_error_names_the_package_and_the_directory(no_jars, tmp_path):
    with pytest.raises(ZooKeeperFailed, match=rf"apt-get install libzookeeper-java.*{JARS_VARIABLE}.*zookeeper_jars="):
        class_path(installed=tmp_path)


def test_a_directory_without_zookeeper_is_named(tmp_path):
    cluster = kafkapy.Cluster(1, zookeeper_jars=tmp_path)
    with pytest.raises(ZooKeeperFailed, match=rf"no zookeeper-\*\.jar in {tmp_path}"):
        cluster.start()
    assert not cluster.directory.exists()


@pytest.mark.other_runtime
def test_a_server_that_does_not_start_says_why(tmp_path):
    (tmp_path / "zookeeper-0.jar").touch()
    with pytest.raises(ZooKeeperFailed, match=r"exit code 1.*QuorumPeerMain"):
        kafkapy.Cluster(1, zookeeper_jars=tmp_path).start()


def test_a_reserved_port_is_free_only_for_a_server_that_reuses_addresses():
    with reserve_port() as reserved, socket.socket() as other:
        address = reserved.getsockname()
        with pytest.raises(OSError, match="in use"):
            other.bind(address)
        with socket.create_server(address) as server, socket.create_connection(address) as client:
            assert server.accept()[1] == client.getsockname()


def test_jars_come_from_the_argument_then_from_the_variable_then_from_the_package(monkeypatch, tmp_path):
    for name in ("a", "b", "package"):
        (tmp_path / name).mkdir()
        (tmp_path / name / ("zookeeper.jar" if name == "package" else "zookeeper-3.8.4.jar")).touch()
    monkeypatch.setenv(JARS_VARIABLE, str(tmp_path / "b"))
    package = tmp_path / "package"
    assert class_path(tmp_path / "a", installed=package) == f"{tmp_path}/a/*"
    assert class_path(installed=package) == f"{tmp_path}/b/*"
    monkeypatch.delenv(JARS_VARIABLE)
    assert class_path(installed=package) == f"{package}/zookeeper.jar"
    (package / "slf4j-simple.jar").touch()
    assert class_path(installed=package) == f"{package}/zookeeper.jar:{package}/slf4j-simple.jar"
    assert str(DEBIAN_JARS) == "/usr/share/java"
