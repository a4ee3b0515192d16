"""Broker settings: ZooKeeper."""

from __future__ import annotations

from kafkapy.runtime.config_def import ConfigType as T
from kafkapy.runtime.config_def import Range
from kafkapy.server.config.keys.row import HIGH, LOW, MEDIUM, Row

ROWS: tuple[Row, ...] = (
    ("zookeeper.connect", T.STRING, None, None, HIGH, "E",
     "Comma-separated ZooKeeper servers, as HOST:PORT (default port: 2181), with an optional chroot path at the end."),
    ("zookeeper.connection.timeout.ms", T.INT, None, None, HIGH, "E",
     "Longest wait for the first connection; if not set, zookeeper.session.timeout.ms applies."),
    ("zookeeper.session.timeout.ms", T.INT, 18000, None, HIGH, "E",
     "Silence after which ZooKeeper ends this broker's session."),
    ("zookeeper.max.in.flight.requests", T.INT, 10, Range(1), HIGH, "E", "Most requests to ZooKeeper in flight."),
    ("zookeeper.set.acl", T.BOOLEAN, False, None, HIGH, "E", "Whether znodes are created with ACLs."),
    ("zookeeper.metadata.migration.enable", T.BOOLEAN, False, None, HIGH, "",
     "Whether metadata is migrated from ZooKeeper to KRaft."),
    ("zookeeper.metadata.migration.min.batch.size", T.INT, 200, Range(1), MEDIUM, "I",
     "Records in one batch of that migration."),
    ("zookeeper.clientCnxnSocket", T.STRING, None, None, MEDIUM, "",
     "Java class of the connection; for TLS it must be the one that uses Netty."),
    ("zookeeper.ssl.client.enable", T.BOOLEAN, False, None, MEDIUM, "E", "Whether connections to ZooKeeper use TLS."),
    ("zookeeper.ssl.cipher.suites", T.LIST, None, None, LOW, "", "Cipher suites for connections to ZooKeeper."),
    ("zookeeper.ssl.crl.enable", T.BOOLEAN, False, None, LOW, "", "Whether revocation lists are checked."),
    ("zookeeper.ssl.ocsp.enable", T.BOOLEAN, False, None, LOW, "", "Whether revocation is checked with OCSP."),
    ("zookeeper.ssl.enabled.protocols", T.LIST, None, None, LOW, "", "TLS versions for connections to ZooKeeper."),
    ("zookeeper.ssl.endpoint.identification.algorithm", T.STRING, "HTTPS", None, LOW, "E",
     "How ZooKeeper's name is checked against its certificate."),
    ("zookeeper.ssl.keystore.location", T.STRING, None, None, MEDIUM, "E",
     "PEM file with this broker's certificate and key for ZooKeeper."),
    ("zookeeper.ssl.keystore.password", T.PASSWORD, None, None, MEDIUM, "E",
     "Password of the key in zookeeper.ssl.keystore.location."),
    ("zookeeper.ssl.keystore.type", T.STRING, None, None, MEDIUM, "E",
     "Format of zookeeper.ssl.keystore.location: PEM."),
    ("zookeeper.ssl.protocol", T.STRING, "TLSv1.2", None, LOW, "", "TLS version of the context for ZooKeeper."),
    ("zookeeper.ssl.truststore.location", T.STRING, None, None, MEDIUM, "E",
     "PEM file with the certificates that this broker trusts when it connects to ZooKeeper."),
    ("zookeeper.ssl.truststore.password", T.PASSWORD, None, None, MEDIUM, "",
     "Password of zookeeper.ssl.truststore.location."),
    ("zookeeper.ssl.truststore.type", T.STRING, None, None, MEDIUM, "E",
     "Format of zookeeper.ssl.truststore.location: PEM."),
)  # fmt: skip
