"""Reads the server.properties of a broker of Kafka 0.7, unchanged: the settings of the part that serves 0.7's clients.

Names, defaults and ranges are those of kafka.server.KafkaConfig of Kafka 0.7.2. Settings without effect here are logged
at the start.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kafkapy.log.config import HOUR_MS
from kafkapy.log.log07.settings import Settings
from kafkapy.runtime.config_def import INT_MAX, ConfigError, ConfigKey, ConfigType, Range, key_table
from kafkapy.server.config.properties import PropertiesError, load_properties

SETTING = "kafkapy.kafka07.properties"

_REQUIRED = ("brokerid", "log.dir")
_INERT = ("num.threads", "monitoring.period.secs")  # network threads are shared, and metrics have no period
_POSITIVE = Range(1, INT_MAX)


def _key(name: str, type: str, default: Any, validator: Range | None, doc: str) -> ConfigKey:
    return ConfigKey(name, type, default, validator, "MEDIUM", doc, effect=name not in _INERT)


_INT, _LONG, _STRING, _BOOLEAN = ConfigType.INT, ConfigType.LONG, ConfigType.STRING, ConfigType.BOOLEAN

KEYS: Mapping[str, ConfigKey] = key_table(
    (
        _key("port", _INT, 6667, Range(0, 65535), "Port of the listener, on all interfaces."),
        _key("hostname", _STRING, None, None, "Host that is registered in ZooKeeper; not set: this host's address."),
        _key("brokerid", _INT, None, Range(0), "Id in the registry of 0.7, which is not that of later versions."),
        _key("socket.send.buffer", _INT, 100 * 1024, None, "SO_SNDBUF of connections."),
        _key("socket.receive.buffer", _INT, 100 * 1024, None, "SO_RCVBUF of connections."),
        _key("max.socket.request.bytes", _INT, 100 * 1024 * 1024, _POSITIVE, "Size of the largest request."),
        _key("max.message.size", _INT, 1_000_000, Range(0), "Size of the largest payload of a stored message."),
        _key("num.threads", _INT, None, _POSITIVE, "No effect: num.network.threads is for all listeners."),
        _key("monitoring.period.secs", _INT, 600, _POSITIVE, "No effect: see kafkapy.metrics.listen."),
        _key("num.partitions", _INT, 1, _POSITIVE, "Partitions of topics without a number of their own."),
        _key("log.dir", _STRING, None, None, "Directory of the logs, never one of log.dirs."),
        _key("log.file.size", _INT, 1 << 30, Range(5), "Size above which a segment gets no more appends."),
        _key("topic.log.file.size", _STRING, "", None, "log.file.size of single topics, as a:1000,b:2000."),
        _key("log.roll.hours", _INT, 168, _POSITIVE, "Age of its first append at which a segment is rolled."),
        _key("topic.log.roll.hours", _STRING, "", None, "log.roll.hours of single topics."),
        _key("log.retention.hours", _INT, 168, _POSITIVE, "Age at which a segment is deleted."),
        _key("topic.log.retention.hours", _STRING, "", None, "log.retention.hours of single topics."),
        _key("log.retention.size", _LONG, -1, None, "Size to which a log is cut by deleting segments; -1: no limit."),
        _key("topic.log.retention.size", _STRING, "", None, "log.retention.size of single topics."),
        _key("log.cleanup.interval.mins", _INT, 10, _POSITIVE, "How often segments are deleted."),
        _key("enable.zookeeper", _BOOLEAN, True, None, "Whether the broker registers in ZooKeeper."),
        _key("log.flush.interval", _INT, 500, _POSITIVE, "Messages after which a log is flushed."),
        _key("topic.flush.intervals.ms", _STRING, "", None, "log.default.flush.interval.ms of single topics."),
        _key("log.default.flush.scheduler.interval.ms", _INT, 3000, _POSITIVE, "How often to look for due flushes."),
        _key("log.default.flush.interval.ms", _INT, None, None, "Time after which a log is flushed; not set: the "
             "value of log.default.flush.scheduler.interval.ms."),
        _key("topic.partition.count.map", _STRING, "", None, "Partitions of single topics, as a:8,b:16."),
        _key("max.topic.name.length", _INT, 255, _POSITIVE, "Length of the longest name of a topic."),
        _key("zk.connect", _STRING, None, None, "HOST:PORT,HOST:PORT of ZooKeeper, with the chroot at the end."),
        _key("zk.sessiontimeout.ms", _INT, 6000, _POSITIVE, "Session time-out."),
        _key("zk.connectiontimeout.ms", _INT, None, _POSITIVE, "Time to connect; not set: the session time-out."),
        _key("zk.synctime.ms", _INT, 2000, None, "No effect, as in 0.7."),
    )
)  # fmt: skip

_Map = dict[str, int]


class Kafka07Config:
    """The settings of a server.properties of Kafka 0.7. `config["port"]` is the value of any setting in KEYS.

    `warnings` are lines to log at the start.
    """

    def __init__(self, given: Mapping[str, str]) -> None:
        """Parse and check the settings. Raises ConfigError."""
        self.values = {name: key.default for name, key in KEYS.items()}
        self.warnings: list[str] = []
        unknown = sorted(set(given) - set(KEYS))
        inert = sorted(set(given) & set(_INERT))
        if unknown:
            self.warnings.append(f"unknown settings, ignored: {', '.join(unknown)}")
        if inert:
            self.warnings.append(f"settings without effect in this broker: {', '.join(inert)}")
        for name, text in given.items():
            if name in KEYS:
                self.values[name] = KEYS[name].parse(text)
        for name in _REQUIRED:
            if not given.get(name, "").strip():
                raise ConfigError(name, given.get(name), "must be set")
        if self.values["enable.zookeeper"] and not self.values["zk.connect"]:
            raise ConfigError("zk.connect", None, "must be set, or enable.zookeeper must be false")
        if ":" in (self.values["hostname"] or ""):
            raise ConfigError(
                "hostname", self.values["hostname"], "must not have a colon, which separates host and port in 0.7's "
                "registry: name a host or an IPv4 address"
            )  # fmt: skip
        if self.values["log.default.flush.interval.ms"] is None:
            self.values["log.default.flush.interval.ms"] = self.values["log.default.flush.scheduler.interval.ms"]
        if self.values["zk.connectiontimeout.ms"] is None:
            self.values["zk.connectiontimeout.ms"] = self.values["zk.sessiontimeout.ms"]
        self._count: int = self.values["num.partitions"]
        self._counts = self._map("topic.partition.count.map")
        self._of_topics = {
            "segment_bytes": self._map("topic.log.file.size"),
            "roll_ms": _in_ms(self._map("topic.log.roll.hours")),
            "retention_ms": _in_ms(self._map("topic.log.retention.hours")),
            "retention_bytes": self._map("topic.log.retention.size"),
            "flush_ms": self._map("topic.flush.intervals.ms"),
        }
        self._defaults = Settings(
            segment_bytes=self.values["log.file.size"],
            roll_ms=self.values["log.roll.hours"] * HOUR_MS,
            retention_ms=self.values["log.retention.hours"] * HOUR_MS,
            retention_bytes=max(self.values["log.retention.size"], -1),
            flush_ms=self.values["log.default.flush.interval.ms"],
            flush_messages=self.values["log.flush.interval"],
            max_message=self.values["max.message.size"],
        )

    @classmethod
    def load(cls, path: Path) -> Kafka07Config:
        """Read the file at `path`. Raises ConfigError, which names the file, for anything that is wrong with it."""
        try:
            return cls(load_properties(path))
        except OSError as error:
            raise ConfigError(SETTING, str(path), f"the file cannot be read: {error.strerror}") from error
        except (PropertiesError, ConfigError) as error:
            raise ConfigError(SETTING, str(path), str(error)) from error

    def __getitem__(self, name: str) -> Any:
        return self.values[name]

    @property
    def log_dir(self) -> Path:
        return Path(self.values["log.dir"]).absolute()

    def count_of(self, topic: str) -> int:
        """Return the number of partitions of a topic."""
        return self._counts.get(topic, self._count)

    def settings_of(self, topic: str) -> Settings:
        """Return the settings of a topic's logs."""
        own = {name: values[topic] for name, values in self._of_topics.items() if topic in values}
        return self._defaults._replace(**own)

    def _map(self, name: str) -> _Map:
        """Return the values of single topics in a setting. As in 0.7, what cannot be read is logged and left out."""
        found: _Map = {}
        for part in self.values[name].split(",") if self.values[name] else ():
            topic, _, text = part.partition(":")
            try:
                found[topic] = int(text)
            except ValueError:
                self.warnings.append(f"{name}: {part!r} is not TOPIC:NUMBER, and is ignored")
                continue
            if found[topic] < 1:
                raise ConfigError(name, self.values[name], f"the value of {topic} must be at least 1")
        return found


def _in_ms(hours: _Map) -> _Map:
    return {topic: value * HOUR_MS for topic, value in hours.items()}
