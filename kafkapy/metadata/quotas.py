"""Quotas in the metadata tree: `/config/users/U`, `/config/users/U/clients/C`, `/config/clients/C`, `/config/ips/IP`.

Values are stored as texts beside other settings, such as the SCRAM credentials of users. `<default>` in place of a name
means every name without a quota of its own. Sources: QuotaConfigs, ZkAdminManager, ConfigHandler.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from kafkapy.metadata import paths
from kafkapy.metadata.config_edits import ConfigEdit
from kafkapy.metadata.configs import ConfigRegistry, Finished
from kafkapy.metadata.tree import Event, NoNode, Tree

log = logging.getLogger("kafkapy.metadata.quotas")

DEFAULT: Final = paths.DEFAULT_ENTITY

PRODUCER: Final = "producer_byte_rate"
CONSUMER: Final = "consumer_byte_rate"
REQUEST: Final = "request_percentage"
MUTATION: Final = "controller_mutation_rate"
CONNECTIONS: Final = "connection_creation_rate"

LONGEST_LONG: Final = (1 << 63) - 1
LONGEST_INT: Final = (1 << 31) - 1
# The quotas by name, each with its largest value if it is an integer, otherwise None.
CLIENT_KEYS: Final[Mapping[str, int | None]] = {
    PRODUCER: LONGEST_LONG,
    CONSUMER: LONGEST_LONG,
    REQUEST: None,
    MUTATION: None,
}
IP_KEYS: Final[Mapping[str, int | None]] = {CONNECTIONS: LONGEST_INT}

_KINDS = ("users", "clients", "ips")
_ROOTS = tuple(f"{paths.CONFIG}/{kind}" for kind in _KINDS)


class Entity(NamedTuple):
    """The owner of quotas: a user, a client id, both, or an IP address. Names are those in paths; DEFAULT is the
    default, "" means none."""

    user: str = ""
    client_id: str = ""
    ip: str = ""

    @property
    def keys(self) -> Mapping[str, int | None]:
        """Return the quotas that the entity may have, with their largest values."""
        return IP_KEYS if self.ip else CLIENT_KEYS


def place_of(entity: Entity) -> tuple[str, str]:
    """Return the kind of the entity's node and its path below that kind."""
    if entity.ip:
        return "ips", entity.ip
    if not entity.user:
        return "clients", entity.client_id
    return "users", f"{entity.user}/clients/{entity.client_id}" if entity.client_id else entity.user


def entity_at(path: str) -> Entity | None:
    """Return the entity whose node has this path, or None for other nodes."""
    match path.split("/")[2:]:
        case ["users", user]:
            return Entity(user=user)
        case ["users", user, "clients", client_id]:
            return Entity(user=user, client_id=client_id)
        case ["clients", client_id]:
            return Entity(client_id=client_id)
        case ["ips", ip]:
            return Entity(ip=ip)
    return None


def is_usable(key: str, value: float) -> bool:
    """Return True if the value is a valid limit: finite and above 0, or for connection_creation_rate 0 or more."""
    return math.isfinite(value) and value >= 0 and (key == CONNECTIONS or value > 0)


def as_text(value: float, largest: int | None) -> str:
    """Return a quota as it is stored, `largest` as in CLIENT_KEYS."""
    return str(value) if largest is None else str(int(value + 1e-6))


class QuotaRegistry:
    """Reads and writes the quotas. `follow` must be called first. Any thread may read; writes call `done` on the tree's
    thread.

    Reads come from memory, which follows changes by other brokers and by Kafka's tools.
    """

    def __init__(self, tree: Tree, configs: ConfigRegistry) -> None:
        self._tree = tree
        self._configs = configs
        self._quotas: dict[Entity, dict[str, float]] = {}  # an entity's dictionary is replaced, never changed
        self._on_change: Callable[[Entity, Mapping[str, float]], None] = lambda _entity, _quotas: None

    def follow(self, on_change: Callable[[Entity, Mapping[str, float]], None]) -> None:
        """Read all quotas, and read those of an entity again whenever they change.

        `on_change(entity, quotas)` is called for each entity that is read, with {} if it has no quotas any more. It
        must not block.
        """
        self._on_change = on_change
        self._tree.watch("", self._changed)  # before the reads, so that no change is missed
        for root in _ROOTS:
            for name in self._children(root):
                self._read(f"{root}/{name}")
                for client_id in self._children(f"{root}/{name}/clients") if root == paths.USERS else ():
                    self._read(f"{root}/{name}/clients/{client_id}")

    def all(self) -> dict[Entity, dict[str, float]]:
        """Return the quotas of each entity that has some, by name. A value that is stored may be unusable."""
        return dict(self._quotas)

    def alter(self, entity: Entity, changes: Mapping[str, float | None], done: Finished) -> None:
        """Set or remove (None) quotas of an entity. Its other quotas and settings are kept."""
        kind, name = place_of(entity)

        def edit(settings: dict[str, str]) -> None:
            for key, value in changes.items():
                if value is None:
                    settings.pop(key, None)
                else:
                    settings[key] = as_text(value, entity.keys[key])

        ConfigEdit(self._tree, self._configs, kind, name, edit, done).start()

    def _children(self, path: str) -> list[str]:
        try:
            return self._tree.children(path)
        except NoNode:
            return []

    def _changed(self, event: Event) -> None:
        if event.path.startswith(_ROOTS):
            self._read(event.path)

    def _read(self, path: str) -> None:
        entity = entity_at(path)
        if entity is None:
            return
        quotas = self._parsed(path, entity)
        if quotas != self._quotas.get(entity, {}):
            if quotas:
                self._quotas[entity] = quotas
            else:
                self._quotas.pop(entity, None)
            self._on_change(entity, {key: value for key, value in quotas.items() if is_usable(key, value)})

    def _parsed(self, path: str, entity: Entity) -> dict[str, float]:
        quotas: dict[str, float] = {}
        for key, text in self._configs.at(path).items():
            if key not in entity.keys:
                continue
            try:
                quotas[key] = float(text)
            except ValueError:
                quotas[key] = math.nan
            if not is_usable(key, quotas[key]):
                log.error("the quota %s=%s at %s is ignored: it must be a number greater than 0", key, text, path)
        return quotas
