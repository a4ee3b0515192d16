"""Builds ApiVersions responses, also the response to an ApiVersions request of an unknown version."""

from collections.abc import Mapping
from typing import Any

from kafkapy.errors import Errors
from kafkapy.protocol.apis import API_VERSIONS


def versions_response(served: Mapping[int, tuple[int, int]], error_code: int = Errors.NONE) -> Any:
    """Return the ApiVersions response for `served`, the first and last version by API key."""
    entry = API_VERSIONS.Response.ApiKeys
    return API_VERSIONS.Response(
        error_code=error_code,
        api_keys=[entry(api_key=key, min_version=low, max_version=high) for key, (low, high) in sorted(served.items())],
    )


def unsupported(served: Mapping[int, tuple[int, int]]) -> Any:
    """Make the response to an ApiVersions request of an unknown version; it is sent as version 0.

    As Kafka (KIP-511): UNSUPPORTED_VERSION and only the range of ApiVersions itself, from which the client chooses the
    version of its next request.
    """
    return versions_response({API_VERSIONS.key: served[API_VERSIONS.key]}, Errors.UNSUPPORTED_VERSION)
