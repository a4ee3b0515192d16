"""Versions of Apache Kafka as settings name them, and the message format of each version (MetadataVersion).

`inter.broker.protocol.version` is the version of the oldest broker in the cluster. While it is below 3.0,
`message.format.version` selects the format in which a topic's messages are stored.
"""

from __future__ import annotations

from kafkapy.runtime.config_def import Rule, Validator

# Kafka's MetadataVersion, oldest first. A short name such as "3.9" or "0.10.2.1" means the newest version of its line.
_VERSIONS = """
0.8.0 0.8.1 0.8.2 0.9.0 0.10.0-IV0 0.10.0-IV1 0.10.1-IV0 0.10.1-IV1 0.10.1-IV2 0.10.2-IV0 0.11.0-IV0 0.11.0-IV1
0.11.0-IV2 1.0-IV0 1.1-IV0 2.0-IV0 2.0-IV1 2.1-IV0 2.1-IV1 2.1-IV2 2.2-IV0 2.2-IV1 2.3-IV0 2.3-IV1 2.4-IV0 2.4-IV1
2.5-IV0 2.6-IV0 2.7-IV0 2.7-IV1 2.7-IV2 2.8-IV0 2.8-IV1 3.0-IV0 3.0-IV1 3.1-IV0 3.2-IV0 3.3-IV0 3.3-IV1 3.3-IV2
3.3-IV3 3.4-IV0 3.5-IV0 3.5-IV1 3.5-IV2 3.6-IV0 3.6-IV1 3.6-IV2 3.7-IV0 3.7-IV1 3.7-IV2 3.7-IV3 3.7-IV4 3.8-IV0
3.9-IV0 4.0-IV0 4.0-IV1
"""
METADATA_VERSIONS: tuple[str, ...] = tuple(_VERSIONS.split())

LATEST = "3.9-IV0"
DEFAULT_FORMAT = "3.0-IV1"

_RANK = {version: rank for rank, version in enumerate(METADATA_VERSIONS)}
_FORMAT_1 = _RANK["0.10.0-IV0"]
_FORMAT_2 = _RANK["0.11.0-IV0"]
# From this version on every broker of the cluster knows format 2, and no setting can select another format.
_FORMAT_FIXED = _RANK["3.0-IV1"]

_FIRST_OF_FORMAT = ("0.8.0", "0.10.0", "0.11.0")


def metadata_version(text: str) -> str | None:
    """Return the full name of a Kafka version ("3.0-IV1" for "3.0"), None if there is no such version."""
    if text in _RANK:
        return text
    parts = text.split(".")
    # Before 1.0 a release line has three numbers ("0.10.2"), since then two ("2.8"), with or without -IVn.
    line = ".".join(parts[: 3 if parts[0] == "0" else 2])
    found = [version for version in METADATA_VERSIONS if line in (version, version.partition("-")[0])]
    return found[-1] if found else None


def rank(version: str) -> int:
    """Return the position of a Kafka version in METADATA_VERSIONS, to compare versions by age.

    Raise ValueError for an unknown version.
    """
    full = metadata_version(version)
    if full is None:
        raise ValueError(f"{version} is no version of Apache Kafka")
    return _RANK[full]


def newest_format(version: str) -> int:
    """Return the newest message format (0, 1 or 2) that brokers of this version know. It is also their default."""
    place = rank(version)
    return 0 if place < _FORMAT_1 else 1 if place < _FORMAT_2 else 2


def first_with_format(magic: int) -> str:
    """Return the short name of the oldest Kafka version that knows message format `magic` (0, 1 or 2)."""
    return _FIRST_OF_FORMAT[magic]


def format_can_be_chosen(protocol_version: str) -> bool:
    """Return True if message.format.version has an effect: only if inter.broker.protocol.version is below 3.0."""
    return rank(protocol_version) < _FORMAT_FIXED


def _version_problem(value: str) -> str | None:
    return None if metadata_version(value) else "must be a version of Apache Kafka, such as 3.9 or 3.9-IV0"


METADATA_VERSION_RULE: Validator = Rule("[" + ", ".join(METADATA_VERSIONS) + "]", _version_problem)
