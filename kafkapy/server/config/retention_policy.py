"""Loads the retention policy that `kafkapy.retention.policy` names."""

from __future__ import annotations

import importlib
from typing import cast

from kafkapy.log.retention import RetentionPolicy
from kafkapy.runtime.config_def import ConfigError

_KEY = "kafkapy.retention.policy"


def load_policy(name: str) -> RetentionPolicy | None:
    """Return an instance of the class MODULE:CLASS, created without arguments; None for "". Raise ConfigError."""
    if not name:
        return None
    module, _, attribute = name.partition(":")
    try:
        policy = getattr(importlib.import_module(module), attribute)()
    except (ImportError, AttributeError, TypeError) as error:
        raise ConfigError(_KEY, name, f"the policy cannot be made: {error}") from error
    if not callable(getattr(policy, "rules", None)):
        raise ConfigError(_KEY, name, "a policy has a method rules(log, now_ms), as kafkapy.log.retention says")
    return cast("RetentionPolicy", policy)
