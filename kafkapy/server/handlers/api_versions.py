"""ApiVersions: what the broker serves, derived from the handlers' registrations (KIP-35, KIP-511)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from kafkapy.errors import Errors
from kafkapy.protocol.api_versions import versions_response
from kafkapy.protocol.apis import API_VERSIONS
from kafkapy.server.api_table import TABLE, serves
from kafkapy.server.call import Call

if TYPE_CHECKING:
    from kafkapy.server.services import Services

# A client's software name and version: letters, digits, and between them dots and dashes (KIP-511).
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
_NAMED_SINCE = 3


@serves(API_VERSIONS)
def handle(broker: Services, call: Call, request: Any) -> Any:
    if call.version >= _NAMED_SINCE and not (
        _SOFTWARE.fullmatch(request.client_software_name) and _SOFTWARE.fullmatch(request.client_software_version)
    ):
        return versions_response({}, Errors.INVALID_REQUEST)
    return versions_response(TABLE.versions())
