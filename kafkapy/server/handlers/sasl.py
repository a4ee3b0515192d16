"""SaslHandshake (versions 0 to 1) and SaslAuthenticate (versions 0 to 2) on a connection whose client has logged in, or
of a listener without SASL. First logins are in `kafkapy.server.logins`.

On a SASL listener these requests re-authenticate the client (KIP-368); otherwise the response is ILLEGAL_SASL_STATE.
Source: KafkaApis.handleSaslHandshakeRequest, SaslServerAuthenticator.

Differences from Kafka:

- During a re-authentication Kafka refuses all other requests. Here they are handled until the session expires.
- A SaslHandshake of version 0 begins no re-authentication, because the tokens that follow could not be distinguished
  from requests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkapy.errors import Errors
from kafkapy.protocol.apis import SASL_AUTHENTICATE, SASL_HANDSHAKE
from kafkapy.server.api_table import serves
from kafkapy.server.call import Call
from kafkapy.server.checks import NoCheck
from kafkapy.server.logins.sessions import Session

if TYPE_CHECKING:
    from kafkapy.server.services import Services


_PART_OF_LOGIN = NoCheck("part of the login")


@serves(SASL_HANDSHAKE, checks=_PART_OF_LOGIN)
def handshake(broker: Services, call: Call, request: Any) -> Any:
    """Handle SaslHandshake: begin a re-authentication, or return ILLEGAL_SASL_STATE."""
    session = call.connection.session
    if isinstance(session, Session):
        return session.handshake(call, request.mechanism)
    return SASL_HANDSHAKE.Response(error_code=Errors.ILLEGAL_SASL_STATE, mechanisms=[])


@serves(SASL_AUTHENTICATE, checks=_PART_OF_LOGIN)
def authenticate(broker: Services, call: Call, request: Any) -> Any:
    """Handle SaslAuthenticate: take the next message of a re-authentication, or return ILLEGAL_SASL_STATE."""
    session = call.connection.session
    if isinstance(session, Session):
        return session.authenticate(call, bytes(request.auth_bytes))
    return SASL_AUTHENTICATE.Response(
        error_code=Errors.ILLEGAL_SASL_STATE,
        error_message="SaslAuthenticate request received after successful authentication",
        auth_bytes=b"",
    )
