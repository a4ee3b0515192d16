"""Hides the secrets in metadata nodes: keys of SCRAM, and passwords in the settings of brokers."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from kafkapy.metadata import paths
from kafkapy.metadata.configs import BROKERS, USERS
from kafkapy.metadata.tree import Node
from kafkapy.runtime.config_def import HIDDEN
from kafkapy.security.sasl.scram import HASHES
from kafkapy.server.config.keys import shown

ShowSecrets = Annotated[
    bool, typer.Option("--show-secrets", help="Also show keys of SCRAM users and encrypted passwords.")
]


def without_secrets(path: str, node: Node) -> Node:
    """Return the node with a placeholder in the place of each secret."""
    if path == paths.SCRAM_CHALLENGE_KEY:
        return node._replace(data=HIDDEN.encode())
    user = path.startswith(f"{paths.CONFIG}/{USERS}/")
    if not node.data or not (user or path.startswith(f"{paths.CONFIG}/{BROKERS}/")):
        return node
    try:
        whole = json.loads(node.data)
        settings = whole.get("config", {})
        whole["config"] = {
            name: (HIDDEN if name in HASHES else value) if user else shown(name, str(value))
            for name, value in settings.items()
        }
    except (ValueError, AttributeError, RecursionError):
        return node._replace(data=HIDDEN.encode())  # not understood, so it may hold a secret
    return node._replace(data=paths.to_json(whole))
