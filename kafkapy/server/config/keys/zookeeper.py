"""Broker settings: ZooKeeper."""

from __future__ import annotations

from kafkapy.runtime.config_def import ConfigType as T
from kafkapy.runtime.config_def import Range
from kafkapy.server.config.keys.row import HIGH, LOW, MEDIUM, Row

ROWS: tuple[Row, ...] = (
    ("zookeeper.connect", T.STRING, None, None, HIGH, "E",
     "ZooKeeper servers, as HOST:PORT with commas between and an optional path at the end."),
    ("zookeeper.connection.timeout.ms", T.INT, None, None, HIGH, "E",
     "Wait for the first connection; unset, the session timeout counts."),
    ("zookeeper.session.timeout.ms", T.INT, 18000, None, HIGH, "E", "Silence after which ZooKeeper drops this broker."),
    ("zookeeper.max.in.flight.requests", T.INT, 10, Range(1), HIGH, "E", "Requests under way to ZooKeeper at once."),
    ("zookeeper.set.acl", T.BOOLEAN, False, None, HIGH, "E", "Whether nodes are made with ACLs."),
    ("zookeeper.metadata.migration.enable", T.BOOLEAN, False, None, HIGH, "",
     "Whether metadata moves from ZooKeeper to KRaft."),
    ("zookeeper.metadata.migration.min.batch.size", T.INT, 200, Range(1), MEDIUM, "I",
     "Records in one step of that move."),
    ("zookeeper.clientCnxnSocket", T.STRING, None, None, MEDIUM, "",
     "Java class of the connection; TLS needs the one of Netty."),
    ("zookeeper.ssl.client.enable", T.BOOLEAN, False, None, MEDIUM, "E", "Whether TLS is used towards ZooKeeper."),
    ("zookeeper.ssl.cipher.suites", T.LIST, None, None, LOW, "", "Cipher suites towards ZooKeeper."),
    ("zookeeper.ssl.crl.enable", T.BOOLEAN, False, None, LOW, "", "Whether revocation lists are looked at."),
    ("zookeeper.ssl.ocsp.enable", T.BOOLEAN, False, None, LOW, "", "Whether revocation is asked for by OCSP."),
    ("zookeeper.ssl.enabled.protocols", T.LIST, None, None, LOW, "", "TLS versions towards ZooKeeper."),
    ("zookeeper.ssl.endpoint.identification.algorithm", T.STRING, "HTTPS", None, LOW, "E",
     "How ZooKeeper's name is checked against its certificate."),
    ("zookeeper.ssl.keystore.location", T.STRING, None, None, MEDIUM, "E",
     "PEM file with our certificate and key towards ZooKeeper."),
    ("zookeeper.ssl.keystore.password", T.PASSWORD, None, None, MEDIUM, "E", "Password of the key in it."),
    ("zookeeper.ssl.keystore.type", T.STRING, None, None, MEDIUM, "E", "Its format: PEM."),
    ("zookeeper.ssl.protocol", T.STRING, "TLSv1.2", None, LOW, "", "TLS version of the context towards ZooKeeper."),
    ("zookeeper.ssl.truststore.location", T.STRING, None, None, MEDIUM, "E",
     "PEM file with the certificates that ZooKeeper is trusted by."),
    ("zookeeper.ssl.truststore.password", T.PASSWORD, None, None, MEDIUM, "", "Password of that trust store."),
    ("zookeeper.ssl.truststore.type", T.STRING, None, None, MEDIUM, "E", "Its format: PEM."),
)  # fmt: skip
