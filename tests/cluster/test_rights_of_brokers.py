"""Brokers need ClusterAction on the cluster: without it nothing is replicated, and each broker logs it once."""

from pathlib import Path

import pytest

import kafkapy
from kafkapy.client import Admin, NewTopic, RecordProducer
from kafkapy.client.administration.acl_admin import AclAdmin
from kafkapy.errors import Errors
from kafkapy.protocol import apis
from kafkapy.security.acls.bindings import Binding, Entry, Filter, Pattern
from tests.harness.wire import Wire
from tests.harness.zookeeper import eventually, jars_in
from tests.server.requests import batch, request

pytestmark = pytest.mark.other_runtime

EVERYBODY = "User:ANONYMOUS"
ON_CLUSTER = Pattern("CLUSTER", "kafka-cluster")
CONFIG = {
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "allow.everyone.if.no.acl.found": "true",  # until there is an ACL of the cluster
    "replica.fetch.backoff.ms": "100",
    "replica.lag.time.max.ms": "60000",
    "min.insync.replicas": "3",
}


def test_brokers_replicate_only_with_the_right_of_brokers(tmp_path: Path) -> None:
    cluster = kafkapy.Cluster(3, zookeeper_jars=jars_in(tmp_path / "libs"), config=CONFIG)
    with cluster, Admin(cluster.bootstrap_servers) as admin:
        admin.create_topics([NewTopic("t", 3)])
        acls = AclAdmin(admin.cluster)
        acls.create_acls(
            Binding(ON_CLUSTER, Entry(EVERYBODY, "*", operation, "ALLOW"))
            for operation in ("CLUSTER_ACTION", "ALTER", "DESCRIBE")
        )
        with RecordProducer(admin.cluster, timeout_s=30) as producer:
            for partition in range(3):
                producer.send("t", b"replicated", partition=partition)
        (deleted,) = acls.delete_acls([Filter("CLUSTER", "kafka-cluster", operation="CLUSTER_ACTION")])
        for number in (1, 2, 3):
            log = cluster.broker(number).stderr
            eventually(lambda log=log: "neither among super.users nor allowed ClusterAction" in log(), what=log)
        leader = admin.cluster.topic("t", refresh=True).partitions[0].leader
        not_replicated = request("t", batch(b"not replicated"), acks=-1)
        not_replicated.timeout_ms = 200
        with Wire(cluster.broker(leader).bootstrap_servers) as wire:
            answer = wire.call(apis.PRODUCE, 9, not_replicated)
        assert answer.responses[0].partition_responses[0].error_code == Errors.REQUEST_TIMED_OUT
        acls.create_acls([deleted])
        with RecordProducer(admin.cluster, timeout_s=30) as producer:
            for partition in range(3):
                producer.send("t", b"replicated again", partition=partition)
        for number in (1, 2, 3):
            lines = [line for line in cluster.broker(number).stderr().splitlines() if "refuses all fetches" in line]
            assert 1 <= len(lines) <= 2, lines  # one line for each leader that this broker follows
