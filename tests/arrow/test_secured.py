"""Arrow tables to and from a broker that needs TLS and a login."""

import pyarrow as pa
import pytest

import kafkapy
import kafkapy.arrow
from kafkapy.client import AuthenticationFailed, Cluster


def test_rows_are_written_and_read():
    with kafkapy.Broker(tls=True, users={"alice": "secret"}) as broker:
        servers, security = broker.bootstrap_servers, broker.client_properties("alice", "SCRAM-SHA-512")
        rows = pa.table({"value": pa.array([b"1", b"2", b"3"], pa.binary())})
        for transactional_id in (None, "id"):
            kafkapy.arrow.write(
                "t", rows, bootstrap_servers=servers, security=security, transactional_id=transactional_id
            )
        for given in (
            {"bootstrap_servers": servers, "security": security},
            {"bootstrap_servers": Cluster(servers, security=security)},
        ):
            found = kafkapy.arrow.read("t", columns=["value"], **given).read_all()
            assert sorted(found["value"].to_pylist()) == [b"1", b"1", b"2", b"2", b"3", b"3"]
            if isinstance(given["bootstrap_servers"], Cluster):
                given["bootstrap_servers"].close()
        with pytest.raises(AuthenticationFailed):
            kafkapy.arrow.read(
                "t", bootstrap_servers=servers, security={**security, "sasl.username": "alice", "sasl.password": "no"}
            )
