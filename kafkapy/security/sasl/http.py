"""Requests to an OAuth provider. They block, and so must not run on a network thread."""

from __future__ import annotations

import http.client
import ssl
import time
import urllib.request
from collections.abc import Mapping
from urllib.error import HTTPError

from kafkapy.security.tls.context import client_context

LARGEST_ANSWER = 1 << 20
TIMEOUT_S = 10.0


def context_of(options: Mapping[str, str]) -> ssl.SSLContext | None:
    """Return the TLS context for a provider's URL that the options `ssl.*` of a JAAS line describe, None without any.

    Raise StoreError if they cannot be used.
    """
    stores = {name: value for name, value in options.items() if name.startswith("ssl.")}
    return client_context(stores) if stores else None  # None: the system's authorities


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Follows no redirects: the URL in the settings is the only address that is trusted."""

    def redirect_request(self, *args: object) -> None:
        return None


def request(
    url: str,
    *,
    body: bytes | None = None,
    headers: Mapping[str, str] | None = None,
    timeout_s: float = TIMEOUT_S,
    context: ssl.SSLContext | None = None,
) -> bytes:
    """Send a GET, or a POST of `body`, and return the body of the response. Raise OSError if no response comes, if it
    is an error, or if it comes too slowly: `timeout_s` is the time limit for connecting, for the first bytes and then
    for the whole response.

    The message of an error does not contain the body or the headers.
    """
    opener = urllib.request.OpenerDirector()
    handlers: list[urllib.request.BaseHandler] = [
        urllib.request.HTTPHandler(),
        urllib.request.HTTPSHandler(context=context),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPErrorProcessor(),
        _NoRedirect(),
    ]
    for handler in handlers:
        opener.add_handler(handler)
    made = urllib.request.Request(url, data=body, headers={"Accept": "application/json", **(headers or {})})
    try:
        with opener.open(made, timeout=timeout_s) as response:
            data = _read(response, time.monotonic() + timeout_s)
    except HTTPError as error:
        error.close()
        raise OSError(f"{url} answered with the status {error.code}") from None
    except (OSError, http.client.HTTPException) as error:
        raise OSError(f"no answer from {url}: {getattr(error, 'reason', None) or error}") from None
    if len(data) > LARGEST_ANSWER:
        raise OSError(f"{url} answered with more than {LARGEST_ANSWER} bytes")
    return data


def _read(response: http.client.HTTPResponse, deadline: float) -> bytes:
    """Return the response's body, cut off soon after LARGEST_ANSWER bytes. Raise TimeoutError after `deadline`: the
    socket's own time limit is for one receive, so a server that sends a byte now and then would hold the thread for
    ever."""
    data = bytearray()
    while len(data) <= LARGEST_ANSWER and (received := response.read1(1 << 16)):
        data += received
        if time.monotonic() > deadline:
            raise TimeoutError("the answer comes too slowly")
    return bytes(data)
