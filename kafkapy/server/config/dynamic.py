"""Dynamic broker settings: stored in the metadata tree, and applied to the broker's parts (KIP-226)."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from kafkapy.metadata.configs import ConfigRegistry
from kafkapy.metadata.tree import wait
from kafkapy.runtime.config_def import ConfigError
from kafkapy.server.config.alter import check_broker
from kafkapy.server.config.broker_config import BrokerConfig
from kafkapy.server.config.dynamic_keys import usable
from kafkapy.server.config.keys import shown

if TYPE_CHECKING:
    from kafkapy.server.services import Services

log = logging.getLogger("kafkapy.server.config.dynamic")

Change = Callable[[dict[str, str]], dict[str, str]]


class DynamicConfig:
    """Applies changes to `services.config`, then calls `on_change(config)` so that the parts take them over."""

    def __init__(self, services: Services, registry: ConfigRegistry, on_change: Callable[[BrokerConfig], None]) -> None:
        self._services = services
        self._registry = registry
        self._on_change = on_change
        self._changing = threading.Lock()

    def load(self) -> None:
        """Apply the stored dynamic settings to `services.config`. Log and ignore those that cannot be used."""
        broker, bad = usable(self._registry.broker(self._services.broker_id), per_broker=True)
        default, bad_default = usable(self._registry.broker_default(), per_broker=False)
        for name, rule in [*bad.items(), *bad_default.items()]:
            log.warning("the stored dynamic setting %s is ignored: it %s", name, rule)
        now = self._services.config
        if (broker, default) != (now.dynamic_broker, now.dynamic_default):
            try:
                self._services.config = self._services.config.with_dynamic(default, broker)
            except ConfigError as error:
                log.error("the stored dynamic settings clash with the others and are ignored: %s", error)

    def reload(self) -> None:
        """Apply stored settings that another program may have changed. Blocks."""
        with self._changing:
            before = self._services.config
            self.load()
            if self._services.config is not before:
                self._on_change(self._services.config)
                log.info("dynamic settings were changed by others, and count from now on")

    def alter(self, change: Change, *, per_broker: bool, validate_only: bool) -> None:
        """Replace this broker's dynamic settings, or the cluster's, with `change(settings)`. Blocks.

        With `validate_only` only check the result. Raise KafkaError if a setting is invalid or cannot be stored.
        """
        with self._changing:
            broker_id = self._services.broker_id
            stored = self._registry.broker(broker_id) if per_broker else self._registry.broker_default()
            current, ignored = usable(stored, per_broker=per_broker)
            values = change(current)
            config = check_broker(self._services.config, values, per_broker=per_broker)
            if validate_only:
                return
            # Stored settings that are ignored, such as a password that Kafka has encrypted, are kept unless changed.
            kept = {name: text for name, text in change(stored).items() if name in ignored and name not in values}
            values = {**kept, **values}
            if per_broker:
                wait(self._registry.set_broker, broker_id, values)
            else:
                wait(self._registry.set_broker_default, values)
            self._services.config = config
            self._on_change(config)
        now = {name: shown(name, text) for name, text in values.items()}
        log.info("dynamic settings of %s are now: %s", f"broker {broker_id}" if per_broker else "all brokers", now)
