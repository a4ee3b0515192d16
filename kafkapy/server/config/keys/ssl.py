"""Broker settings: TLS."""

from __future__ import annotations

from kafkapy.runtime.config_def import ConfigType as T
from kafkapy.runtime.config_def import OneOf
from kafkapy.server.config.keys.row import LOW, MEDIUM, Row

ROWS: tuple[Row, ...] = (
    ("ssl.allow.dn.changes", T.BOOLEAN, False, None, LOW, "E",
     "Whether a new key store may have a different distinguished name."),
    ("ssl.allow.san.changes", T.BOOLEAN, False, None, LOW, "E",
     "Whether a new key store may have different alternative names."),
    ("ssl.cipher.suites", T.LIST, [], None, MEDIUM, "EB", "Cipher suites to offer; empty: those of the TLS library."),
    ("ssl.client.auth", T.STRING, "none", OneOf("required", "requested", "none"), MEDIUM, "EB",
     "Whether clients need a certificate: required, requested (optional) or none."),
    ("ssl.enabled.protocols", T.LIST, ["TLSv1.2", "TLSv1.3"], None, MEDIUM, "EB", "TLS versions to offer."),
    ("ssl.endpoint.identification.algorithm", T.STRING, "https", None, LOW, "EB",
     "How a server's name is checked against its certificate; empty: not at all."),
    ("ssl.engine.factory.class", T.CLASS, None, None, LOW, "EB", "Java class that creates TLS engines."),
    ("ssl.key.password", T.PASSWORD, None, None, MEDIUM, "EB", "Password of the private key."),
    ("ssl.keymanager.algorithm", T.STRING, "SunX509", None, MEDIUM, "EB", "Algorithm of the key manager."),
    ("ssl.keystore.certificate.chain", T.PASSWORD, None, None, MEDIUM, "EB", "Certificate chain in PEM."),
    ("ssl.keystore.key", T.PASSWORD, None, None, MEDIUM, "EB", "Private key in PEM."),
    ("ssl.keystore.location", T.STRING, None, None, MEDIUM, "EB", "File of the key store."),
    ("ssl.keystore.password", T.PASSWORD, None, None, MEDIUM, "EB", "Password of the key store."),
    ("ssl.keystore.type", T.STRING, "JKS", None, MEDIUM, "EB", "Format of the key store."),
    ("ssl.principal.mapping.rules", T.STRING, "DEFAULT", None, LOW, "E",
     "Rules that turn distinguished names into user names."),
    ("ssl.protocol", T.STRING, "TLSv1.3", None, MEDIUM, "B", "TLS version of the context."),
    ("ssl.provider", T.STRING, None, None, MEDIUM, "EB", "Java security provider for TLS."),
    ("ssl.secure.random.implementation", T.STRING, None, None, LOW, "EB", "Random generator for TLS."),
    ("ssl.trustmanager.algorithm", T.STRING, "PKIX", None, MEDIUM, "EB", "Algorithm of the trust manager."),
    ("ssl.truststore.certificates", T.PASSWORD, None, None, MEDIUM, "EB", "Trusted certificates in PEM."),
    ("ssl.truststore.location", T.STRING, None, None, MEDIUM, "EB", "File of the trust store."),
    ("ssl.truststore.password", T.PASSWORD, None, None, MEDIUM, "EB", "Password of the trust store."),
    ("ssl.truststore.type", T.STRING, "JKS", None, MEDIUM, "EB", "Format of the trust store."),
)  # fmt: skip
