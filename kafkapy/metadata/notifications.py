"""Notifications of changes: sequence nodes that Kafka's brokers read, and that are deleted when they are old."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kafkapy.metadata.tree import Create, Delete, Operation, Tree, TreeError, split_path

# Notifications are kept as long as in Kafka: a broker that has been cut off from ZooKeeper reads them when it is back.
_KEPT_S = 15 * 60.0
_CLEANING_S = 60.0


class Notifications:
    """Writes the notifications at one place of the metadata tree. `path` is that of the notifications, without the
    digits that the tree appends."""

    def __init__(self, tree: Tree, path: str, monotonic: Callable[[], float]) -> None:
        self._tree = tree
        self._path = path
        self._parent, _ = split_path(path)
        self._monotonic = monotonic
        self._seen: dict[str, float] = {}  # notifications, and when this broker saw them first
        self._cleaned_at = -_CLEANING_S

    def notify(self, data: bytes) -> list[Operation]:
        """Return the operation that writes a notification, or no operation if the tree has no node for notifications.
        Sometimes also delete old notifications."""
        if not self._tree.exists(self._parent):
            return []
        now = self._monotonic()
        if now - self._cleaned_at >= _CLEANING_S:
            self._cleaned_at = now
            self._delete_old(now)
        return [Create(self._path, data, sequence=True)]

    def _delete_old(self, now: float) -> None:
        """Delete the notifications that this broker first saw _KEPT_S seconds ago or earlier."""
        names = self._tree.children(self._parent)
        self._seen = {name: self._seen.get(name, now) for name in names}
        for name, seen_at in self._seen.items():
            if now - seen_at >= _KEPT_S:
                self._tree.submit([Delete(f"{self._parent}/{name}")], _ignore)


def _ignore(results: list[Any] | None, error: TreeError | None) -> None:
    """Do nothing with the outcome of deleting old notifications: other brokers delete them too, so the deletion may
    fail."""
