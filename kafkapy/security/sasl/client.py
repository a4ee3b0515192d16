"""The client's side of a login: the interface of all mechanisms, and the choice of one by settings.

The settings have Kafka's names (`sasl.mechanism`, `sasl.jaas.config`) or librdkafka's (`sasl.mechanisms`,
`sasl.username`, `sasl.password`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from kafkapy.security.sasl.errors import MECHANISMS, SaslSettingError, unknown_mechanism
from kafkapy.security.sasl.http import context_of
from kafkapy.security.sasl.jaas import OAUTH_MODULE, JaasEntry, parse_jaas
from kafkapy.security.sasl.oauthbearer import OAuthClient
from kafkapy.security.sasl.plain import PlainClient
from kafkapy.security.sasl.scram_client import ScramClient
from kafkapy.security.sasl.token_source import (
    TokenCache,
    claims_of_options,
    file_token,
    provider_token,
    unsecured_token,
)
from kafkapy.security.sasl.urls import file_of_url
from kafkapy.security.tls.errors import StoreError

# Kafka's own handler classes, whose behaviour is built in.
LOGIN_HANDLERS = (
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler",
    "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerLoginCallbackHandler",
)

_JAAS = "sasl.jaas.config"
_ENDPOINT = "sasl.oauthbearer.token.endpoint.url"
_EXTENSION = "extension_"
_UNSECURED_EXTENSION = "unsecuredLoginExtension_"


class ClientMechanism(Protocol):
    """The client's side of one login. Both methods raise AuthenticationFailed if the login cannot succeed."""

    @property
    def name(self) -> str:
        """Return the mechanism's name, such as SCRAM-SHA-256."""
        ...

    def initial(self) -> bytes:
        """Return the first message. With OAUTHBEARER this may block for long: it asks an OAuth provider for a token."""
        ...

    def respond(self, challenge: bytes) -> bytes | None:
        """Return the answer to the server's message, or None if the login is complete and the server verified.

        SCRAM computes PBKDF2 for the first message of a server, which takes one to ten milliseconds.
        """
        ...


def client_mechanism(settings: Mapping[str, Any], host: str) -> ClientMechanism:
    """Return the mechanism for a new connection to `host`, as the settings choose it.

    Raise SaslSettingError if a setting is missing or invalid.
    """
    name = mechanism_name(settings)
    entry = _jaas(settings)
    if name == "OAUTHBEARER":
        if entry is not None and entry.module != OAUTH_MODULE:
            raise SaslSettingError(f"{_JAAS} must have the OAuthBearerLoginModule for OAUTHBEARER")
        options = entry.options if entry is not None else {}
        return OAuthClient(_tokens(settings, options).get, _extensions(settings, options))
    options = entry.options if entry is not None else {}
    user = _text(settings, "sasl.username") or options.get("username", "")
    password = _text(settings, "sasl.password") or options.get("password", "")
    if not user or not password:
        raise SaslSettingError(
            f"{name} needs a user and a password: set sasl.username and sasl.password, or {_JAAS} with username and "
            "password"
        )
    if name == "PLAIN":
        return PlainClient(user, password)
    return ScramClient(name, user, password, token_auth=options.get("tokenauth", "").lower() == "true")


def mechanism_name(settings: Mapping[str, Any]) -> str:
    """Return the name of the mechanism that the settings choose. Raise SaslSettingError if they choose none."""
    setting = "sasl.mechanism" if _text(settings, "sasl.mechanism") else "sasl.mechanisms"
    name = _text(settings, setting).strip().upper()
    if not name or name == "GSSAPI":
        what = "Kafka's default, GSSAPI," if not name else "GSSAPI"
        raise SaslSettingError(f"sasl.mechanism: {what} is not supported; choose one of {', '.join(MECHANISMS)}")
    if name not in MECHANISMS:
        raise unknown_mechanism(setting, name)
    return name


def _jaas(settings: Mapping[str, Any]) -> JaasEntry | None:
    text = _text(settings, _JAAS)
    return parse_jaas(_JAAS, text) if text.strip() else None


def _text(settings: Mapping[str, Any], name: str) -> str:
    value = settings.get(name)
    return "" if value is None else str(value)


_caches: dict[tuple[object, ...], TokenCache] = {}  # of all connections in this process
_caches_lock = threading.Lock()
_MOST_CACHES = 1000


def _tokens(settings: Mapping[str, Any], options: Mapping[str, str]) -> TokenCache:
    """Return the cache of tokens for these settings: all connections of this process share it."""
    names = sorted(name for name in settings if name.startswith(("sasl.oauthbearer.", "sasl.login.")))
    callback = settings.get("oauth_cb")
    key = (*((name, str(settings[name])) for name in names), *sorted(options.items()), callback)
    with _caches_lock:
        cache = _caches.get(key)
        if cache is None:
            if len(_caches) >= _MOST_CACHES:
                _caches.clear()
            factor = _number(settings, "sasl.login.refresh.window.factor", 0.8)
            cache = _caches[key] = TokenCache(_fetcher(settings, options, callback), factor)
        return cache


def _fetcher(
    settings: Mapping[str, Any], options: Mapping[str, str], callback: Callable[[str], Any] | None
) -> Callable[[], tuple[str, float]]:
    handler = _text(settings, "sasl.login.callback.handler.class")
    if handler and handler not in LOGIN_HANDLERS:
        raise SaslSettingError(
            f"sasl.login.callback.handler.class: {handler} is not supported; it may be {LOGIN_HANDLERS[0]}"
        )
    if callback is not None:
        config = _text(settings, "sasl.oauthbearer.config")
        return lambda: _first_two(callback(config))
    url = _text(settings, _ENDPOINT)
    if url:
        path = file_of_url(_ENDPOINT, url)
        if path is not None:
            return file_token(path)
        client_id = options.get("clientId") or _text(settings, "sasl.oauthbearer.client.id")
        secret = options.get("clientSecret") or _text(settings, "sasl.oauthbearer.client.secret")
        if not client_id or not secret:
            raise SaslSettingError(f"{_ENDPOINT} needs clientId and clientSecret in {_JAAS}")
        scope = options.get("scope") or _text(settings, "sasl.oauthbearer.scope")
        timeout_ms = _number(settings, "sasl.login.read.timeout.ms", 10_000)
        encode = _text(settings, "sasl.oauthbearer.header.urlencode").lower() == "true"
        try:
            context = context_of(options)
        except StoreError as error:
            raise SaslSettingError(f"{_JAAS}: {error}") from None
        return provider_token(
            url, client_id, secret, scope, encode=encode, timeout_s=timeout_ms / 1000, context=context
        )
    config = _text(settings, "sasl.oauthbearer.config")
    if config and not options:
        options = _options_of_librdkafka(config)
    return unsecured_token(*claims_of_options(options))


def _first_two(answer: Any) -> tuple[str, float]:
    """Return the token and its expiry (seconds since the epoch) from the result of a confluent-kafka `oauth_cb`."""
    return str(answer[0]), float(answer[1])


def _options_of_librdkafka(config: str) -> dict[str, str]:
    """Return Kafka's JAAS options for a `sasl.oauthbearer.config` of librdkafka, such as `principal=alice`."""
    given = dict(part.partition("=")[::2] for part in config.split())
    claim = given.get("principalClaimName", "sub")
    return {
        "unsecuredLoginPrincipalClaimName": claim,
        f"unsecuredLoginStringClaim_{claim}": given.get("principal", ""),
        "unsecuredLoginLifetimeSeconds": given.get("lifeSeconds", "3600"),
    }


def _extensions(settings: Mapping[str, Any], options: Mapping[str, str]) -> dict[str, str]:
    found = {}
    for prefix in (_EXTENSION, _UNSECURED_EXTENSION):
        found.update({name[len(prefix) :]: value for name, value in options.items() if name.startswith(prefix)})
    for pair in filter(None, _text(settings, "sasl.oauthbearer.extensions").split(",")):
        name, _, value = pair.partition("=")
        found[name.strip()] = value.strip()
    return found


def _number(settings: Mapping[str, Any], name: str, default: float) -> float:
    text = _text(settings, name)
    try:
        return float(text) if text else default
    except ValueError:
        raise SaslSettingError(f"{name} must be a number") from None
