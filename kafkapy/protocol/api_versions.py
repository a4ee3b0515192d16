"""Builds ApiVersions responses, including the response to an ApiVersions request whose version the broker does not
know."""

from collections.abc import Mapping
from typing import Any

from kafkapy.errors import Errors
from kafkapy.protocol.apis import API_VERSIONS


def versions_response(served: Mapping[int, tuple[int, int]], error_code: int = Errors.NONE) -> Any:
    """Return an ApiVersions response message that lists the APIs in `served`, which maps each API key to its first and
    last supported version."""
    entry = API_VERSIONS.Response.ApiKeys
    return API_VERSIONS.Response(
        error_code=error_code,
        api_keys=[entry(api_key=key, min_version=low, max_version=high) for key, (low, high) in sorted(served.items())],
    )


def unsupported(served: Mapping[int, tuple[int, int]]) -> Any:
    """Return the response to an ApiVersions request whose version the broker does not know. The caller must send the
    response as version 0.

    As in Kafka (KIP-511), the response has the error UNSUPPORTED_VERSION and lists only the ApiVersions API itself with
    its version range, so that the client can repeat its request in a supported version. `served` maps each API key to
    the first and last supported version.
    """
    return versions_response({API_VERSIONS.key: served[API_VERSIONS.key]}, Errors.UNSUPPORTED_VERSION)
