"""The errors of SASL logins and of SASL settings."""

from __future__ import annotations

from kafkapy.errors import Errors, KafkaError

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")


class AuthenticationFailed(KafkaError):
    """Raised if a login fails. `message` may be shown to the peer: it does not tell which part of the login was wrong.

    `reason` is for this side's own log, and never contains a password or token.
    """

    def __init__(self, message: str, reason: str | None = None) -> None:
        super().__init__(Errors.SASL_AUTHENTICATION_FAILED, message)
        self.reason = message if reason is None else reason


class SaslSettingError(ValueError):
    """Raised if SASL settings are missing or invalid. The message names the setting, and shows no secret."""


def invalid_credentials(mechanism: str, reason: str) -> AuthenticationFailed:
    """Return the error of a login that fails because of what the client sent.

    The text for the client is the same for an unknown user, a wrong password and a malformed message.
    """
    return AuthenticationFailed(
        f"Authentication failed during authentication due to invalid credentials with SASL mechanism {mechanism}",
        reason,
    )


def unknown_mechanism(setting: str, name: str) -> SaslSettingError:
    """Return the error for a mechanism in a setting that is not one of MECHANISMS."""
    return SaslSettingError(f"{setting}: {name} is not supported; the mechanisms are {', '.join(MECHANISMS)}")
