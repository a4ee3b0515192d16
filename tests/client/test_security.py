"""Reading the properties for TLS and login: honoured, refused, without effect, missing."""

import pickle

import pytest

from kafkapy.client import AuthenticationFailed, BadSecuritySettings, ClientError, Cluster, Security
from kafkapy.client.properties import ClientProperties
from kafkapy.client.security import read_security, security_of

LOGIN = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.username": "u", "sasl.password": "pw"}


def test_the_default_is_plain_text():
    assert security_of(None) == Security() == security_of({})
    assert (Security().tls, Security().login) == (False, False)


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL", "sasl_ssl"])
def test_a_protocol_says_whether_there_is_tls_and_a_login(protocol):
    found = security_of(LOGIN | {"security.protocol": protocol})
    assert (found.tls, found.login) == (protocol.upper().endswith("SSL"), protocol.upper().startswith("SASL"))


def test_java_names_and_those_of_librdkafka_are_the_same_properties():
    java = {"security.protocol": "SSL", "ssl.truststore.location": "/a"}
    assert security_of(java) == security_of({"security.protocol": "ssl", "ssl.ca.location": "/a"})
    with pytest.raises(ValueError, match=r"ssl\.ca\.location is another name of ssl\.truststore\.location, which is"):
        security_of(java | {"ssl.ca.location": "/b"})


def test_properties_of_a_protocol_that_is_not_used_are_warned_of_without_their_values(caplog):
    read = ClientProperties({"security.protocol": "SSL", "sasl.password": "secret"}, prefix="k.", where="f: ")
    read_security(read)
    assert [r.getMessage() for r in caplog.records] == ["f: k.sasl.password has no effect with the protocol SSL"]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (
            {"security.protocol": "TLS"},
            r"security\.protocol is 'TLS'; it can be PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL",
        ),
        (
            {"sasl.mechanism": None},
            r"sasl\.mechanism is missing, and Kafka's default GSSAPI is not supported; it can be P",
        ),
        (
            {"sasl.mechanism": "GSSAPI"},
            r"sasl\.mechanism is 'GSSAPI'; it can be PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OA",
        ),
        ({"sasl.password": None}, r"sasl\.password is missing: PLAIN needs sasl\.jaas\.config, or sasl\.username and"),
        ({"ssl.kestore.location": "x"}, r"ssl\.kestore\.location is not a property .* did you mean ssl\.keystore\.loc"),
        (
            {"sasl.client.callback.handler.class": "x.Y"},
            r"sasl\.client\.callback\.handler\.class cannot be set: it names",
        ),
        ({"ssl.crl.location": "x"}, r"ssl\.crl\.location cannot be set: revocation lists are not supported"),
        ({"ssl.key.location": "x"}, r"ssl\.key\.location needs ssl\.certificate\.location too"),
        (
            {"enable.ssl.certificate.verification": "maybe"},
            r"enable\.ssl\.certificate\.verification is 'maybe'; it can",
        ),
        ({"bootstrap.servers": "x"}, r"bootstrap\.servers is not a property of TLS and login"),
    ],
)
def test_a_property_that_cannot_be_used_is_named(more, message):
    with pytest.raises(ValueError, match=message) as caught:
        security_of(LOGIN | more)
    assert "pw" not in str(caught.value)


def test_a_security_shows_no_secret_and_survives_pickling():
    security = security_of(LOGIN)
    assert repr(security) == str(security) == "Security(SASL_SSL)"
    assert pickle.loads(pickle.dumps(security)) == security
    assert hash(security) == hash(security_of(LOGIN))
    assert security != security_of(LOGIN | {"sasl.password": "another"})


def test_a_store_that_cannot_be_read_is_one_error_that_names_it():
    with (
        Cluster("127.0.0.1:1", security={"security.protocol": "SSL", "ssl.ca.location": "/no/such"}) as cluster,
        pytest.raises(BadSecuritySettings, match=r"/no/such"),
    ):
        cluster.security.context()


def test_an_authentication_failure_can_be_pickled_and_is_a_client_error():
    error = AuthenticationFailed("The login failed.")
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.code) == ("The login failed.", error.code)
    assert isinstance(again, ClientError)
