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
from kafkapy.server.api_table import serves
from kafkapy.server.call import Call

if TYPE_CHECKING:
    from kafkapy.server.services import Services

_WITH_REQUESTER = 3  # the first version of CreateDelegationToken with the user who asks (KIP-373)
_NO_TIME = -1  # Kafka's DelegationTokenManager.ErrorTimestamp


def _error(call: Call) -> int:
    if call.connection.principal == ANONYMOUS:
        return Errors.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    return Errors.DELEGATION_TOKEN_AUTH_DISABLED


@serves(CREATE_DELEGATION_TOKEN)
def create(broker: Services, call: Call, request: Any) -> Any:
    """Handle CreateDelegationToken: return an error, with the user who asks as the owner."""
    kind, _, name = call.connection.principal.partition(":")
    response = CREATE_DELEGATION_TOKEN.Response(
        error_code=_error(call),
        principal_type=getattr(request, "owner_principal_type", None) or kind,
        principal_name=getattr(request, "owner_principal_name", None) or name,
        issue_timestamp_ms=_NO_TIME,
        expiry_timestamp_ms=_NO_TIME,
        max_timestamp_ms=_NO_TIME,
    )
    if call.version >= _WITH_REQUESTER:
        response.token_requester_principal_type = kind
        response.token_requester_principal_name = name
    return response


@serves(RENEW_DELEGATION_TOKEN)
def renew(broker: Services, call: Call, request: Any) -> Any:
    """Handle RenewDelegationToken: return an error."""
    return RENEW_DELEGATION_TOKEN.Response(error_code=_error(call), expiry_timestamp_ms=_NO_TIME)


@serves(EXPIRE_DELEGATION_TOKEN)
def expire(broker: Services, call: Call, request: Any) -> Any:
    """Handle ExpireDelegationToken: return an error."""
    return EXPIRE_DELEGATION_TOKEN.Response(error_code=_error(call), expiry_timestamp_ms=_NO_TIME)


@serves(DESCRIBE_DELEGATION_TOKEN)
def describe(broker: Services, call: Call, request: Any) -> Any:
    """Handle DescribeDelegationToken: return an error and no tokens."""
    return DESCRIBE_DELEGATION_TOKEN.Response(error_code=_error(call), tokens=[])
