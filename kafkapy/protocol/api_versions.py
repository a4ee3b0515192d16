"""ApiVersions: the answer derived from what is served, and the one to a version that nobody knows."""

from collections.abc import Mapping
from typing import Any

from kafkapy.errors import Errors
from kafkapy.protocol.apis import API_VERSIONS
from kafkapy.protocol.headers import UnsupportedApi, response_frame


def versions_response(served: Mapping[int, tuple[int, int]], error_code: int = Errors.NONE) -> Any:
    """Make the response that promises `served`: for each api key the first and last version."""
    entry = API_VERSIONS.Response.ApiKeys
    return API_VERSIONS.Response(
        error_code=error_code,
        api_keys=[entry(api_key=key, min_version=low, max_version=high) for key, (low, high) in sorted(served.items())],
    )


def unsupported(request: UnsupportedApi, served: Mapping[int, tuple[int, int]]) -> bytes:
    """Make the whole frame that answers an ApiVersions request of an unknown version.

    As Kafka (KIP-511): response v0 with UNSUPPORTED_VERSION and only the range of ApiVersions itself, from which
    the client chooses the version that it asks with next.
    """
    own = {API_VERSIONS.key: served[API_VERSIONS.key]}
    return response_frame(API_VERSIONS, 0, request.correlation_id, versions_response(own, Errors.UNSUPPORTED_VERSION))
