"""Checks the URLs in settings of OAUTHBEARER. Imports no HTTP library: every start of a broker imports this module."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit

from kafkapy.security.sasl.errors import SaslSettingError


def file_of_url(setting: str, url: str) -> Path | None:
    """Return the path that a file: URL names, or None for an http: or https: URL.

    Raise SaslSettingError, which names the setting, for any other URL.
    """
    parts = urlsplit(url)
    if parts.scheme == "file":
        return Path(unquote(parts.path))
    if parts.scheme in ("http", "https") and parts.hostname:
        return None
    raise SaslSettingError(f"{setting} must be a URL with file:, http: or https:")
