"""Makes the mechanisms of a SASL listener from its settings, and the principals of the users that log in."""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from kafkapy.runtime.config_def import HIDDEN, ConfigError
from kafkapy.security.sasl import http
from kafkapy.security.sasl.errors import AuthenticationFailed
from kafkapy.security.sasl.jwks import KeyFile, KeySource, KeyUrl
from kafkapy.security.sasl.jwt_tokens import SignedTokens, TokenRules, UnsecuredTokens
from kafkapy.security.sasl.oauthbearer import OAuthServer, TokenRefused, ValidToken
from kafkapy.security.sasl.plain import PlainServer, PlainUsers
from kafkapy.security.sasl.scram import ScramCredential
from kafkapy.security.sasl.scram_server import ScramServer
from kafkapy.security.sasl.server import MakeMechanism, ServerMechanism
from kafkapy.security.sasl.urls import file_of_url
from kafkapy.security.tls.errors import StoreError
from kafkapy.server.config.sasl import (
    BUILDER,
    CALLBACKS,
    JAAS,
    JWKS,
    UNSECURED,
    MechanismSettings,
    SaslSettings,
    full_name,
    load_hook,
    no_plain_users,
    sasl_settings,
)

if TYPE_CHECKING:
    from kafkapy.metadata.users import UserRegistry
    from kafkapy.server.config.broker_config import BrokerConfig
    from kafkapy.server.config.listeners import Listener

log = logging.getLogger("kafkapy.server.logins")


class PrincipalContext(NamedTuple):
    """The argument of a principal builder in Python: the builder's method `build(context)` returns the principal, such
    as "User:alice".

    Attributes:
        listener: The listener's name.
        protocol: The security protocol, such as "SASL_SSL".
        address: The client's IP address.
        mechanism: The SASL mechanism.
        user: The name under which the client has logged in.
    """

    listener: str
    protocol: str
    address: str
    mechanism: str
    user: str


class SaslListener:
    """A SASL listener that is ready for logins: makes the mechanisms and principals of its clients.

    Raises ConfigError if keys cannot be read, or if a class in Python cannot be used.
    """

    def __init__(self, settings: SaslSettings, make: Mapping[str, MakeMechanism]) -> None:
        self.settings = settings
        self._make = make
        self._build: Callable[[PrincipalContext], str] | None = None
        if settings.builder:
            self._build = load_hook(full_name(settings.listener, BUILDER), settings.builder).build

    @property
    def names(self) -> list[str]:
        """Return the names of the mechanisms, in the order of the settings."""
        return list(self._make)

    @property
    def builder_may_wait(self) -> bool:
        """Return True if `principal` calls a class of the operator, which may block."""
        return self._build is not None

    def mechanism(self, name: str) -> ServerMechanism | None:
        """Return the mechanism for a new login, or None if the listener does not offer it."""
        make = self._make.get(name)
        return make() if make is not None else None

    def max_reauth_ms(self, mechanism: str) -> int:
        return self.settings.mechanisms[mechanism].max_reauth_ms

    def principal(self, mechanism: str, user: str, address: str) -> str:
        """Return the principal of a client that has logged in. Raise AuthenticationFailed if there is none."""
        if self._build is None:
            return f"User:{user}"
        settings = self.settings
        try:
            built = self._build(PrincipalContext(settings.listener, settings.protocol, address, mechanism, user))
        except Exception as error:
            raise AuthenticationFailed(
                "Authentication failed: no principal", _failed(settings.builder, error)
            ) from None
        kind, colon, name = built.partition(":") if isinstance(built, str) else ("", "", "")
        if not kind or not colon or not name:
            raise AuthenticationFailed(
                "Authentication failed: no principal", f"{settings.builder} did not return TYPE:NAME for {user}"
            )
        return built


def sasl_listener(config: BrokerConfig, listener: Listener, users: UserRegistry, challenge_key: bytes) -> SaslListener:
    """Return a listener with its mechanisms, as the settings say. Raise ConfigError if one cannot be used.

    `challenge_key` is that of `UserRegistry.challenge_key`.
    """
    settings = sasl_settings(config, listener)
    make = {name: _maker(config, settings, one, users, challenge_key) for name, one in settings.mechanisms.items()}
    return SaslListener(settings, make)


def _maker(
    config: BrokerConfig, settings: SaslSettings, one: MechanismSettings, users: UserRegistry, challenge_key: bytes
) -> MakeMechanism:
    hook_key = full_name(settings.listener, CALLBACKS, one.name)
    if one.name == "PLAIN":
        if one.hook:
            hook = load_hook(hook_key, one.hook, dict(one.options))
            return partial(PlainServer, partial(_checked_password, one.hook, hook.authenticate), may_wait=True)
        plain = PlainUsers(one.options)
        if not len(plain):
            raise no_plain_users(config, full_name(settings.listener, JAAS, one.name))
        return partial(PlainServer, plain.check, may_wait=False)
    if one.name == "OAUTHBEARER":
        if one.hook:
            hook = load_hook(hook_key, one.hook, dict(one.options))
            return partial(OAuthServer, partial(_checked_token, one.hook, hook.validate))
        return partial(OAuthServer, _token_check(config, settings.listener, one.options))
    return partial(ScramServer, one.name, partial(_credential, users, one.name), challenge_key)


def _credential(users: UserRegistry, mechanism: str, user: str) -> ScramCredential | None:
    return users.find(user, mechanism)


def _checked_password(name: str, authenticate: Callable[[str, str], object], user: str, password: str) -> bool:
    try:
        return authenticate(user, password) is True
    except Exception as error:
        raise AuthenticationFailed(
            "Authentication failed: credentials for user could not be verified", _failed(name, error)
        ) from None


def _checked_token(name: str, validate: Callable[[str], tuple[str, int]], token: str) -> ValidToken:
    try:
        user, expires_at_ms = validate(token)
        return ValidToken(str(user), int(expires_at_ms))
    except Exception as error:
        raise TokenRefused(f"{name}: {type(error).__name__}") from None


def _failed(name: str, error: Exception) -> str:
    """Return the reason of a login that fails because a class of the operator has raised an error.

    The traceback is logged with DEBUG only. The number of lines with reasons is limited, that of tracebacks is not, and
    while, for example, the directory with the passwords is down, anybody can cause as many errors as they like.
    """
    log.debug("%s failed", name, exc_info=error)
    return f"{name}: {type(error).__name__}: {error}"


def _token_check(config: BrokerConfig, listener: str, options: Mapping[str, str]) -> Callable[[str], ValidToken]:
    value = partial(config.of_listener, listener, mechanism="OAUTHBEARER")
    rules = TokenRules(
        audience=tuple(value("sasl.oauthbearer.expected.audience") or ()),
        issuer=value("sasl.oauthbearer.expected.issuer"),
        clock_skew_s=value("sasl.oauthbearer.clock.skew.seconds"),
        sub_claim=value("sasl.oauthbearer.sub.claim.name"),
    )
    if config[UNSECURED]:
        return UnsecuredTokens(rules).check
    return SignedTokens(_keys(config, listener, options), rules).check


def _keys(config: BrokerConfig, listener: str, options: Mapping[str, str]) -> KeySource:
    value = partial(config.of_listener, listener, mechanism="OAUTHBEARER")
    url = value(JWKS)
    path = file_of_url(JWKS, url)
    if path is None:
        return KeyUrl(
            partial(http.request, url, context=_context(listener, options)),
            refresh_s=value("sasl.oauthbearer.jwks.endpoint.refresh.ms") / 1000,
            backoff_s=value("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms") / 1000,
            backoff_max_s=value("sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms") / 1000,
        )
    try:
        return KeyFile(path)
    except (OSError, ValueError) as error:
        raise ConfigError(full_name(listener, JWKS, "OAUTHBEARER"), url, f"cannot be read: {error}") from error


def _context(listener: str, options: Mapping[str, str]) -> ssl.SSLContext | None:
    try:
        return http.context_of(options)
    except StoreError as error:
        raise ConfigError(
            full_name(listener, JAAS, "OAUTHBEARER"), HIDDEN, f"{error.setting}: {error.reason}"
        ) from None
