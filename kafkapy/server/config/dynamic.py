"""Dynamic broker settings: stored in the metadata tree, and applied to the broker's parts (KIP-226)."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from kafkapy.errors import Errors, KafkaError
from kafkapy.metadata import paths
from kafkapy.metadata.configs import BROKERS, ConfigRegistry
from kafkapy.runtime.config_def import ConfigError
from kafkapy.server.config.alter import check_broker
from kafkapy.server.config.broker_config import BrokerConfig
from kafkapy.server.config.dynamic_keys import fitting
from kafkapy.server.config.keys import shown
from kafkapy.server.config.security import check_stored
from kafkapy.server.config.stored_passwords import decrypted, encrypted, encrypted_again

if TYPE_CHECKING:
    from kafkapy.server.services import Services

log = logging.getLogger("kafkapy.server.config.dynamic")

Change = Callable[[dict[str, str]], dict[str, str]]


class DynamicConfig:
    """Stores changes of dynamic broker settings and applies them to `services.config`. Then it calls
    `on_change(config)`, so that the parts of the broker use the new settings."""

    def __init__(self, services: Services, registry: ConfigRegistry, on_change: Callable[[BrokerConfig], None]) -> None:
        self._services = services
        self._registry = registry
        self._on_change = on_change
        self._changing = threading.Lock()

    def load(self) -> None:
        """Apply the stored dynamic settings to `services.config` when the broker starts.

        Log and ignore settings that cannot be used. Raise ConfigError if a setting asks for protection, such as TLS or
        an authorizer, that this broker does not support.
        """
        broker_id, registry = self._services.broker_id, self._registry
        check_stored(
            self._services.config,
            {
                paths.config(BROKERS, str(broker_id)): registry.broker(broker_id),
                paths.config(BROKERS, paths.DEFAULT_ENTITY): registry.broker_default(),
            },
        )
        if registry.alter_broker(broker_id, partial(encrypted_again, self._services.config)) is not None:
            log.info("stored passwords are now encrypted with the present password.encoder.secret")
        self._apply_stored()

    def reload(self) -> None:
        """Apply the stored dynamic settings again, because another program may have changed them. This blocks, so it
        must not be called on a network thread."""
        with self._changing:
            before = self._services.config
            self._apply_stored()
            if self._services.config is not before:
                self._on_change(self._services.config)
                log.info("another program has changed dynamic settings, which apply from now on")

    def _apply_stored(self) -> None:
        config, errors = self._with_stored()
        for error in errors.values():
            log.error("a stored dynamic setting is ignored: %s", error)
        now = self._services.config
        if (config.dynamic_broker, config.dynamic_default) != (now.dynamic_broker, now.dynamic_default):
            self._services.config = config

    def _with_stored(self) -> tuple[BrokerConfig, dict[str, str]]:
        """Return the broker's settings with the stored dynamic ones, and an error message, by name, for each stored
        setting that cannot be used."""
        return self._with(self._registry.broker(self._services.broker_id), self._registry.broker_default())

    def _with(self, broker: Mapping[str, str], default: Mapping[str, str]) -> tuple[BrokerConfig, dict[str, str]]:
        """Return the same as `_with_stored`, for these settings of this broker and of all brokers."""
        config = self._services.config
        readable, unreadable = decrypted(config, broker)
        fits, errors = fitting(config, default, readable)
        return fits, errors | unreadable

    def _check_listeners(self, config: BrokerConfig) -> None:
        """Raise KafkaError INVALID_REQUEST if a key store, a trust store or a SASL setting of `config` has changed and
        cannot be used."""
        try:
            if self._services.secured is not None:
                self._services.secured.check(config)
            if self._services.logins is not None:
                self._services.logins.check(config)
        except ConfigError as error:
            raise KafkaError(Errors.INVALID_REQUEST, str(error)) from None

    def _encrypted(self, values: dict[str, str]) -> dict[str, str]:
        try:
            return encrypted(self._services.config, values)
        except ConfigError as error:
            raise KafkaError(Errors.INVALID_REQUEST, str(error)) from None

    def alter(self, change: Change, *, per_broker: bool, validate_only: bool) -> None:
        """Replace this broker's dynamic settings, or the cluster-wide ones if `per_broker` is False, with the result of
        `change(current settings)`. This blocks until the settings are stored in the metadata tree.

        With `validate_only`, only check the result. Raise KafkaError if a setting is invalid or cannot be stored.
        """
        broker_id, registry = self._services.broker_id, self._registry

        def checked(stored: dict[str, str]) -> dict[str, str] | None:
            if per_broker:
                before, _ = self._with(stored, registry.broker_default())
            else:
                before, _ = self._with(registry.broker(broker_id), stored)
            current = before.dynamic_broker if per_broker else before.dynamic_default
            values = change(current)
            after = check_broker(before, values, per_broker=per_broker)
            if per_broker:  # stores and SASL have no cluster-wide settings; a damaged file must not refuse others
                self._check_listeners(after)
            stored_values = self._encrypted(values)
            if validate_only:
                return None
            # Stored settings that are ignored, such as a password with another secret, are kept unless changed.
            kept = {name: text for name, text in change(stored).items() if name not in current and name not in values}
            return {**kept, **stored_values}

        with self._changing:
            values = registry.alter_broker(broker_id, checked) if per_broker else registry.alter_broker_default(checked)
            if values is None:
                return
            self._services.config, _ = self._with_stored()
            self._on_change(self._services.config)
        now = {name: shown(name, text) for name, text in values.items()}
        log.info("dynamic settings of %s are now: %s", f"broker {broker_id}" if per_broker else "all brokers", now)
