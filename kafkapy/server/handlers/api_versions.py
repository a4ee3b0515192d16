"""ApiVersions (versions 0 to 4): the APIs and versions in the handler table (KIP-35, KIP-511).

A request of an unknown version gets a version 0 response, so that the client can choose a version that is served.
Source: KafkaApis.handleApiVersionsRequest.

Differences from Kafka: none known.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from kafkapy.errors import Errors
from kafkapy.protocol.api_versions import unsupported, versions_response
from kafkapy.protocol.apis import API_VERSIONS
from kafkapy.server.api_table import TABLE, serves
from kafkapy.server.call import Call
from kafkapy.server.checks import NoCheck

if TYPE_CHECKING:
    from kafkapy.server.services import Services

# A client's software name and version: letters, digits, dots and dashes, with a letter or digit at both ends (KIP-511).
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
_NAMED_SINCE = 3


@serves(API_VERSIONS, any_version=True, checks=NoCheck("clients ask before they log in"))
def handle(broker: Services, call: Call, request: Any) -> Any:
    """Handle ApiVersions: return the served APIs and versions, or INVALID_REQUEST if the client's software name or
    version is malformed."""
    if request is None:
        return unsupported(TABLE.versions())
    if call.version >= _NAMED_SINCE and not (
        _SOFTWARE.fullmatch(request.client_software_name) and _SOFTWARE.fullmatch(request.client_software_version)
    ):
        return versions_response({}, Errors.INVALID_REQUEST)
    response = versions_response(TABLE.versions())
    response.finalized_features_epoch = broker.features_epoch()
    return response
