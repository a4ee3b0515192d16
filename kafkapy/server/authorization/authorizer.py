"""The authorizer that decides by ACLs, as Kafka's AclAuthorizer does."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING

from kafkapy.metadata.acls import AclRegistry
from kafkapy.metadata.tree import wait
from kafkapy.security.acls.hosts import host_text
from kafkapy.security.acls.rules import Client, Decision, decide, is_allowed_on_some
from kafkapy.server import log_levels
from kafkapy.server.admission import Action

if TYPE_CHECKING:
    from kafkapy.errors import KafkaError
    from kafkapy.metadata.acls import Deletion
    from kafkapy.metadata.tree import Tree
    from kafkapy.security.acls.bindings import Binding, Filter
    from kafkapy.server.authorization.audit import Audit
    from kafkapy.server.call import Call


class AclAuthorizer:
    """Decides by the ACLs in the metadata tree; implements `kafkapy.server.admission.Authorizer`. The constructor
    blocks.

    super_users: principals that may do everything.
    everyone_without_acls: resources without ACLs are open to everybody (allow.everyone.if.no.acl.found).
    """

    pool = None  # it never blocks

    def __init__(self, tree: Tree, super_users: Collection[str], everyone_without_acls: bool, audit: Audit) -> None:
        self._super_users = frozenset(super_users)
        self._everyone_without_acls = everyone_without_acls
        self._audit = audit
        self._lock = threading.Lock()
        self._changes = 0
        self.generation: int | None = 0
        self._acls = AclRegistry(tree, self._changed)
        self.levels_changed()
        log_levels.on_change.append(self.levels_changed)

    def _changed(self) -> None:
        # Called after the index was replaced, so decisions that are kept for this generation are from the new index.
        with self._lock:
            self._changes += 1
        self.levels_changed()

    def levels_changed(self) -> None:
        """Set `generation`: None, so that no decisions are kept, while allowed operations are logged."""
        # Without the lock, a thread that changes log levels could set a generation from before a change of ACLs.
        with self._lock:
            self.generation = None if self._audit.notes_allowed else self._changes

    def denied(
        self, call: Call, actions: Collection[Action], *, logged: bool = True, grants: bool = True
    ) -> Collection[Action]:
        client = self._client(call)
        denied = []
        counts = {next(iter(actions)): 1} if len(actions) == 1 else Counter(actions)
        for action, count in counts.items():
            is_allowed = self._decide(client, action).is_allowed
            if not is_allowed:
                denied.append(action)
            self._audit.decided(call, client, action, is_allowed, count, logged=logged, grants=grants)
        return denied

    def allowed_on_some(self, call: Call, operation: str, resource_type: str) -> bool:
        client = self._client(call)
        index, everyone = self._acls.index, self._everyone_without_acls
        is_allowed = is_allowed_on_some(index, client, operation, resource_type, everyone_without_acls=everyone)
        if not client.is_super_user:  # as in Kafka
            action = Action(operation, resource_type, "NONE")
            self._audit.decided(call, client, action, is_allowed, 0, pattern_type="UNKNOWN")
        return is_allowed

    def may(self, principal: str, action: Action, hosts: Iterable[str]) -> bool:
        """Return True if the principal may do this from at least one of the hosts, or from any host. Nothing is logged:
        this is for warnings at the start."""
        is_super_user = principal in self._super_users
        return any(self._decide(Client(principal, host, is_super_user), action).is_allowed for host in (*hosts, "*"))

    def find(self, which: Filter) -> list[Binding]:
        return self._acls.find(which)

    def create(self, call: Call, acls: Sequence[Binding]) -> list[KafkaError | None]:
        errors: list[KafkaError | None] = wait(self._acls.create, acls)
        return errors

    def delete(self, call: Call, filters: Sequence[Filter]) -> list[Deletion]:
        deletions: list[Deletion] = wait(self._acls.delete, filters)
        return deletions

    def close(self) -> None:
        if self.levels_changed in log_levels.on_change:
            log_levels.on_change.remove(self.levels_changed)

    def _client(self, call: Call) -> Client:
        principal = call.connection.principal
        return Client(principal, host_text(call.connection.peer[0]), principal in self._super_users)

    def _decide(self, client: Client, action: Action) -> Decision:
        return decide(self._acls.index, client, *action, everyone_without_acls=self._everyone_without_acls)
