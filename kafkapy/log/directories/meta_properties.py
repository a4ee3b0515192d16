"""`meta.properties`: which cluster and broker a log directory belongs to (Kafka's MetaProperties).

This broker writes version 0, the version of ZooKeeper mode. A file of version 1, which is written in KRaft mode, is
read and not changed, so that Kafka can use the directory again.
"""

from __future__ import annotations

import os
import time
from typing import NamedTuple

from kafkapy.log.storage.files import Files

NAME = "meta.properties"

_KRAFT = 1


class MetaPropertiesError(ValueError):
    """Raised when a meta.properties file is invalid, or names another broker or cluster.

    The message has the file, the key and the values.
    """


class MetaProperties(NamedTuple):
    """The content of a meta.properties file.

    `cluster_id` is 22 characters of URL-safe base64, None in files of brokers before 0.10.1.
    """

    broker_id: int
    cluster_id: str | None
    version: int = 0

    @property
    def identity(self) -> tuple[int, str | None]:
        """Return (broker id, cluster id), which both versions of the file have."""
        return self.broker_id, self.cluster_id

    @property
    def is_kraft(self) -> bool:
        return self.version == _KRAFT


def parse_properties(data: bytes, path: str) -> MetaProperties:
    """Return the MetaProperties in `data`, the content of the file `path`. Raises MetaPropertiesError."""
    fields = {}
    for raw in data.decode("utf-8", "replace").splitlines():
        line = raw.strip()
        if line and line[0] not in "#!":
            key, _, value = line.partition("=")
            fields[key.strip()] = value.strip()
    if fields.get("version") not in ("0", "1"):
        raise MetaPropertiesError(f"{path} has version={fields.get('version')}: only 0 and 1 are known")
    version = int(fields["version"])
    key = "node.id" if version == _KRAFT else "broker.id"
    try:
        broker_id = int(fields[key])
    except (KeyError, ValueError):
        raise MetaPropertiesError(f"{path} has {key}={fields.get(key)}: expected a number") from None
    return MetaProperties(broker_id, fields.get("cluster.id"), version)


def format_properties(properties: MetaProperties, at: float) -> bytes:
    """Return the content of a meta.properties file as Java's Properties.store writes it: an empty comment, the time,
    the keys.

    `at` is the time in seconds since 1970.
    """
    lines = ["#", time.strftime("#%a %b %d %H:%M:%S UTC %Y", time.gmtime(at)), f"broker.id={properties.broker_id}"]
    lines.append("version=0")
    if properties.cluster_id is not None:
        lines.append(f"cluster.id={properties.cluster_id}")
    return "".join(f"{line}\n" for line in lines).encode()


def read_meta(files: Files, log_dir: str) -> MetaProperties | None:
    """Return the content of the directory's meta.properties, None if there is no such file: no broker has used the
    directory.

    Raises MetaPropertiesError, OSError.
    """
    path = os.path.join(log_dir, NAME)
    try:
        data = files.read(path)
    except FileNotFoundError:
        return None
    return parse_properties(data, path)


def write_meta(files: Files, log_dir: str, properties: MetaProperties, at: float) -> None:
    files.replace(os.path.join(log_dir, NAME), format_properties(properties, at))


def check_meta(found: MetaProperties, wanted: MetaProperties, log_dir: str) -> None:
    """Raise MetaPropertiesError if `found`, the content of the file in `log_dir`, names another broker or cluster than
    `wanted`.
    """
    path = os.path.join(log_dir, NAME)
    if found.broker_id != wanted.broker_id:
        raise MetaPropertiesError(
            f"{path} belongs to broker {found.broker_id}, this is broker {wanted.broker_id}: "
            "correct broker.id or log.dirs"
        )
    if found.cluster_id is not None and found.cluster_id != wanted.cluster_id:
        raise MetaPropertiesError(
            f"{path} belongs to cluster {found.cluster_id}, this broker to {wanted.cluster_id}: correct log.dirs"
        )
