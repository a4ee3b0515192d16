"""Users in the metadata tree: `/config/users/NAME`, where Kafka keeps SCRAM credentials and quotas of users.

Names are URL-encoded in paths (Kafka's Sanitizer). The node's settings `SCRAM-SHA-256` and `SCRAM-SHA-512` are the
credentials. Reads come from memory, which follows changes by other brokers and Kafka's tools.

The node `/cluster/scram_challenge_key` has a random key, from which all brokers compute the same challenges for unknown
users.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from urllib.parse import quote, unquote

from kafkapy.errors import Errors, KafkaError
from kafkapy.metadata import paths
from kafkapy.metadata.config_edits import ConfigEdit
from kafkapy.metadata.configs import USERS, ConfigRegistry
from kafkapy.metadata.tree import Create, NodeExists, NoNode, Tree
from kafkapy.security.base64_text import encode64
from kafkapy.security.sasl.scram import HASHES, ScramCredential, credential_from_text

log = logging.getLogger("kafkapy.metadata.users")

_KEY_BYTES = 32

Finished = Callable[["KafkaError | None"], None]


class UserRegistry:
    """Reads and writes the SCRAM credentials of users. Any thread may read; writes call `done` on the tree's thread."""

    def __init__(self, tree: Tree, configs: ConfigRegistry) -> None:
        self._tree = tree
        self._configs = configs

    def find(self, user: str, mechanism: str) -> ScramCredential | None:
        """Return the user's credential for the mechanism, or None if there is none or it cannot be read."""
        text = self._configs.user(path_name(user)).get(mechanism)
        if text is None:
            return None
        try:
            return credential_from_text(text)
        except ValueError as error:
            log.error("the %s credential of user %s is ignored: %s", mechanism, user, error)
            return None

    def iterations(self, user: str) -> dict[str, int]:
        """Return the number of iterations of each SCRAM credential that the user has, by mechanism.

        Raise ValueError if one cannot be read.
        """
        stored = self._configs.user(path_name(user))
        return {name: credential_from_text(stored[name]).iterations for name in sorted(HASHES) if name in stored}

    def all(self) -> list[str]:
        """Return the names of all users that have a node, also those with quotas only, sorted."""
        try:
            names = self._tree.children(paths.USERS)
        except NoNode:
            return []
        return sorted(unquote(name) for name in names if name != paths.DEFAULT_ENTITY)

    def challenge_key(self) -> bytes:
        """Return the cluster's secret key for the challenges that unknown users get. Create it if there is none.

        Waits for the tree, so a network thread must not call this.
        """
        while True:
            node = self._tree.find(paths.SCRAM_CHALLENGE_KEY)
            if node is not None:
                return node.data
            key = encode64(os.urandom(_KEY_BYTES)).encode()
            try:
                self._tree.commit([Create(paths.SCRAM_CHALLENGE_KEY, key)])
            except NodeExists:
                pass  # another broker created it first

    def alter(self, user: str, changes: Mapping[str, ScramCredential | None], done: Finished) -> None:
        """Set credentials of a user by mechanism; None removes one. The other settings in the user's node are kept.

        `done` gets RESOURCE_NOT_FOUND if a credential to be removed does not exist.
        """

        def edit(settings: dict[str, str]) -> None:
            for mechanism, credential in changes.items():
                if credential is not None:
                    settings[mechanism] = credential.as_text()
                elif settings.pop(mechanism, None) is None:
                    raise KafkaError(Errors.RESOURCE_NOT_FOUND, NO_SUCH_CREDENTIAL)

        ConfigEdit(self._tree, self._configs, USERS, path_name(user), edit, done).start()


NO_SUCH_CREDENTIAL = "Attempt to delete a user credential that does not exist"


def path_name(name: str) -> str:
    """Return the name of a user or client id as paths in the tree have it (Kafka's Sanitizer: URLEncoder, with %20 and
    %2A)."""
    return quote(name, safe="").replace("~", "%7E")
