"""Passwords in a broker's dynamic settings: encrypted in the metadata tree as by Kafka (`password.encoder.*`)."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from typing import TYPE_CHECKING

from kafkapy.extras import how_to_install
from kafkapy.runtime.config_def import HIDDEN, ConfigError
from kafkapy.security.passwords import CIPHERS, KEY_FACTORIES, KEY_LENGTHS, PasswordEncoder, PasswordUnreadable
from kafkapy.server.config.keys import key_of

if TYPE_CHECKING:
    from kafkapy.server.config.broker_config import BrokerConfig

SECRET = "password.encoder.secret"
OLD_SECRET = "password.encoder.old.secret"
_CIPHER = "password.encoder.cipher.algorithm"
_FACTORY = "password.encoder.keyfactory.algorithm"
_KEY_LENGTH = "password.encoder.key.length"


def check(config: BrokerConfig) -> None:
    """Raise ConfigError if passwords could not be encrypted as the settings say, or a library is missing."""
    for name, known in ((_CIPHER, CIPHERS), (_FACTORY, (None, *KEY_FACTORIES)), (_KEY_LENGTH, KEY_LENGTHS)):
        if config[name] not in known:
            raise ConfigError(name, config[name], f"must be one of {', '.join(str(one) for one in known if one)}")
    if config[SECRET] is not None and importlib.util.find_spec("cryptography") is None:
        raise ConfigError(SECRET, HIDDEN, f"needs the library cryptography: {how_to_install('security')}")


def is_password(name: str) -> bool:
    """Return True if the value of the setting is a password."""
    key = key_of(name)
    return key is not None and key.sensitive


def encrypted(config: BrokerConfig, values: Mapping[str, str]) -> dict[str, str]:
    """Return dynamic settings as they are stored: with encrypted passwords.

    Raise ConfigError if there are passwords, and no `password.encoder.secret`.
    """
    stored = dict(values)
    names = [name for name in values if is_password(name)]
    if names:
        encoder = _encoder(config, SECRET)
        if encoder is None:
            raise ConfigError(names[0], HIDDEN, f"passwords are stored encrypted; set {SECRET} in the broker's file")
        stored |= {name: encoder.encode(values[name]) for name in names}
    return stored


def decrypted(config: BrokerConfig, stored: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the stored settings with decrypted passwords, and an error message, by name, for each password that cannot
    be decrypted; the settings lack those."""
    values, errors = dict(stored), {}
    for name in stored:
        if is_password(name):
            try:
                values[name] = _decrypted(config, stored[name])
            except PasswordUnreadable as error:
                del values[name]
                errors[name] = str(ConfigError(name, HIDDEN, str(error)))
    return values, errors


def encrypted_again(config: BrokerConfig, stored: Mapping[str, str]) -> dict[str, str] | None:
    """Return the stored settings with the passwords that the old secret can decrypt encrypted with the present one.

    Return None if no password changes: without `password.encoder.old.secret`, and if none was encrypted with it.
    """
    old, new = _encoder(config, OLD_SECRET), _encoder(config, SECRET)
    if old is None or new is None:
        return None
    changed = {}
    for name in filter(is_password, stored):
        try:
            changed[name] = new.encode(old.decode(stored[name]))
        except PasswordUnreadable:
            continue
    return {**stored, **changed} if changed else None


def _decrypted(config: BrokerConfig, text: str) -> str:
    encoder = _encoder(config, SECRET)
    if encoder is None:
        raise PasswordUnreadable(f"is stored encrypted, and {SECRET} is not set")
    return encoder.decode(text)


def _encoder(config: BrokerConfig, secret: str) -> PasswordEncoder | None:
    if config[secret] is None:
        return None
    return PasswordEncoder(
        config[secret],
        key_factory=config[_FACTORY],
        cipher=config[_CIPHER],
        key_length=config[_KEY_LENGTH],
        iterations=config["password.encoder.iterations"],
    )
