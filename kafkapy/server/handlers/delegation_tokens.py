"""CreateDelegationToken (versions 0 to 3), RenewDelegationToken (versions 0 to 2), ExpireDelegationToken (versions
0 to 2) and DescribeDelegationToken (versions 0 to 3): this broker has no delegation tokens (KIP-48).

The responses are those of a Kafka broker without delegation.token.secret.key: DELEGATION_TOKEN_AUTH_DISABLED, or
DELEGATION_TOKEN_REQUEST_NOT_ALLOWED on a connection whose client has not authenticated.

Differences from Kafka: delegation.token.secret.key is refused at the start, so tokens cannot be enabled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkapy.errors import Errors
from kafkapy.network.connection import ANONYMOUS
from kafkapy.protocol.apis import (
    CREATE_DELEGATION_TOKEN,
    DESCRIBE_DELEGATION_TOKEN,
    EXPIRE_DELEGATION_TOKEN,
    RENEW_DELEGATION_TOKEN,
)
from kafkapy.server.admission import denied_names
from kafkapy.server.api_table import serves
from kafkapy.server.call import Call
from kafkapy.server.checks import Check, NoCheck, Right

if TYPE_CHECKING:
    from kafkapy.server.services import Services

_WITH_REQUESTER = 3  # the first version of CreateDelegationToken with the user who asks (KIP-373)
_NO_TIME = -1  # Kafka's DelegationTokenManager.ErrorTimestamp


_USER = "User"
_NO_TOKENS = NoCheck("there are no tokens; Kafka asks about single tokens only")


def _error(call: Call) -> int:
    if call.connection.principal == ANONYMOUS:
        return Errors.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    return Errors.DELEGATION_TOKEN_AUTH_DISABLED


@serves(
    CREATE_DELEGATION_TOKEN,
    checks=[
        Check(
            Right("CREATE_TOKENS", "USER"), "DELEGATION_TOKEN_AUTHORIZATION_FAILED", only="tokens that others will own"
        )
    ],
)
def create(broker: Services, call: Call, request: Any) -> Any:
    """Handle CreateDelegationToken: return an error. The response names the owner in the request, by default the user
    who sent it."""
    kind, _, name = call.connection.principal.partition(":")
    owner_kind, owner_name = kind, name
    if call.version >= _WITH_REQUESTER and request.owner_principal_name:
        owner_kind, owner_name = request.owner_principal_type or "", request.owner_principal_name
    response = CREATE_DELEGATION_TOKEN.Response(
        error_code=_creation_error(broker, call, f"{owner_kind}:{owner_name}"),
        principal_type=owner_kind,
        principal_name=owner_name,
        issue_timestamp_ms=_NO_TIME,
        expiry_timestamp_ms=_NO_TIME,
        max_timestamp_ms=_NO_TIME,
    )
    if call.version >= _WITH_REQUESTER:
        response.token_requester_principal_type = kind
        response.token_requester_principal_name = name
    return response


def _creation_error(broker: Services, call: Call, owner: str) -> int:
    error = _error(call)
    if error == Errors.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED:
        return error
    if owner != call.connection.principal and denied_names(broker, call, "CREATE_TOKENS", "USER", [owner]):
        return Errors.DELEGATION_TOKEN_AUTHORIZATION_FAILED
    if any(renewer.principal_type != _USER for renewer in call.request.renewers):
        return Errors.INVALID_PRINCIPAL_TYPE
    return error


@serves(RENEW_DELEGATION_TOKEN, checks=_NO_TOKENS)
def renew(broker: Services, call: Call, request: Any) -> Any:
    """Handle RenewDelegationToken: return an error."""
    return RENEW_DELEGATION_TOKEN.Response(error_code=_error(call), expiry_timestamp_ms=_NO_TIME)


@serves(EXPIRE_DELEGATION_TOKEN, checks=_NO_TOKENS)
def expire(broker: Services, call: Call, request: Any) -> Any:
    """Handle ExpireDelegationToken: return an error."""
    return EXPIRE_DELEGATION_TOKEN.Response(error_code=_error(call), expiry_timestamp_ms=_NO_TIME)


@serves(DESCRIBE_DELEGATION_TOKEN, checks=_NO_TOKENS)
def describe(broker: Services, call: Call, request: Any) -> Any:
    """Handle DescribeDelegationToken: return an error and no tokens."""
    return DESCRIBE_DELEGATION_TOKEN.Response(error_code=_error(call), tokens=[])
