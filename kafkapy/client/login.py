"""The login of a connection: SaslHandshake, then the tokens of a SASL mechanism in SaslAuthenticate requests.

Source: KIP-43, KIP-152 and KIP-368; SaslClientAuthenticator of Kafka 3.9.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from kafkapy.client.errors import AuthenticationFailed, BrokerTimedOut, ConnectionFailed
from kafkapy.errors import Errors, KafkaError, message_of
from kafkapy.protocol.apis import SASL_AUTHENTICATE, SASL_HANDSHAKE, Api

if TYPE_CHECKING:
    from kafkapy.security.sasl.client import ClientMechanism


class LoginConnection(Protocol):
    """The part of a Connection that a login uses."""

    address: str

    def version_of(self, api: Api) -> int: ...

    def exchange(self, api: Api, request: Any) -> Any:
        """Send a request, and return its response."""
        ...

    def exchange_token(self, token: bytes) -> bytes:
        """Send a token outside of a request, and return the broker's answer."""
        ...


def log_in(connection: LoginConnection, mechanism: ClientMechanism) -> int:
    """Log in, or log in again. Return how long the session lasts in ms, 0 if the broker does not limit it.

    Raise AuthenticationFailed if the broker refuses the login, or if the broker cannot prove that it knows the
    password, and ConnectionFailed if the connection fails.
    """
    bare = connection.version_of(SASL_HANDSHAKE) == 0  # Kafka 0.10: tokens without requests, and no error codes
    response = connection.exchange(SASL_HANDSHAKE, SASL_HANDSHAKE.Request(mechanism=mechanism.name))
    if response.error_code == Errors.UNSUPPORTED_SASL_MECHANISM:
        has = ", ".join(response.mechanisms)
        raise _failed(connection, f"it has no SASL mechanism {mechanism.name}, but {has}")
    if response.error_code == Errors.ILLEGAL_SASL_STATE:
        raise _failed(connection, "its listener takes no login; use the security protocol PLAINTEXT or SSL")
    if response.error_code != Errors.NONE:
        raise _failed(connection, message_of(response.error_code))
    lifetime_ms = 0
    try:
        token: bytes | None = mechanism.initial()
        while token is not None:
            if bare:
                challenge = _bare_answer(connection, token)
            else:
                response = connection.exchange(SASL_AUTHENTICATE, SASL_AUTHENTICATE.Request(auth_bytes=token))
                if response.error_code != Errors.NONE:
                    raise _failed(connection, response.error_message or message_of(response.error_code))
                challenge, lifetime_ms = response.auth_bytes, response.session_lifetime_ms
            token = mechanism.respond(challenge)
    except AuthenticationFailed:
        raise
    except KafkaError as error:  # of the mechanism
        raise _failed(connection, error.message) from error
    return lifetime_ms


def _bare_answer(connection: LoginConnection, token: bytes) -> bytes:
    try:
        return connection.exchange_token(token)
    except BrokerTimedOut:
        raise
    except ConnectionFailed as error:
        raise _failed(
            connection, "it closed the connection, as brokers of its version do after a failed login"
        ) from error


def _failed(connection: LoginConnection, reason: str) -> AuthenticationFailed:
    return AuthenticationFailed(f"The login to the broker at {connection.address} failed: {reason.rstrip('.')}.")
