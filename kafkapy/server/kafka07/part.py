"""Creates, starts and stops the part of the broker that serves clients of Kafka 0.7."""

from __future__ import annotations

import logging
import socket
from pathlib import Path
from typing import TYPE_CHECKING

from kafkapy.log.directories.dir_lock import DirLocked
from kafkapy.log.environment import Environment
from kafkapy.log.failures import LogDirFailure
from kafkapy.log.log07.directory import LogDir07
from kafkapy.network.settings import Listener
from kafkapy.runtime.scheduler import Scheduler
from kafkapy.runtime.threads import Thread
from kafkapy.server.config.apply import load_policy
from kafkapy.server.config.kafka07 import SETTING, Kafka07Config
from kafkapy.server.kafka07.directories import check_log_dir_07
from kafkapy.server.kafka07.handler import Handler07
from kafkapy.server.metadata_store import StartError, check_kazoo
from kafkapy.server.metrics import kafka_07 as metrics

if TYPE_CHECKING:
    from kafkapy.network.connection import Connection
    from kafkapy.runtime.disk_pool import DiskPool
    from kafkapy.server.kafka07.registry import Registry07
    from kafkapy.server.services import Services

log = logging.getLogger("kafkapy.server.kafka07")

NAME = "kafka07"  # of the listener; names in `listeners` become upper case, so none of them is the same
FIRST_CLEANUP_S = 60.0


class Kafka07:
    """The listener, the logs and the registry. Call `start` once the socket listens, before clients are served, and
    `stop` at the end."""

    def __init__(self, services: Services, file: Path, scheduler: Scheduler, pool: DiskPool) -> None:
        """Read the settings, and lock the directory. Raises ConfigError, StartError and OSError."""
        self._services = services
        self._file = file
        self._config = config = Kafka07Config.load(file)
        self._has_begun = False  # clients may have appended something
        self._scheduler = scheduler
        check_log_dir_07(file, config.log_dir, services.config.log_dirs)
        for line in config.warnings:
            log.warning("%s: %s", file, line)
        log.warning(
            "%s: the listener of Kafka 0.7 is open to other machines in plain text, and its clients need no login", file
        )
        if config["enable.zookeeper"]:
            check_kazoo(f"{SETTING}: zk.connect")
        self._registry: Registry07 | None = None
        env = Environment(
            str(config.log_dir),
            services.log_manager.files,
            services.clock,
            scheduler,
            pool=pool,
            retention=load_policy(services.config.kafkapy_retention_policy),
            on_failure=self._directory_failed,
        )
        try:
            self.directory = LogDir07(env, config.settings_of, config.count_of)
        except DirLocked as error:
            raise StartError(f"log.dir in {file}: {error}") from None
        self.listener = Listener(NAME, "", config["port"], f"'port' in {file}")
        self._handler = Handler07(services, config, self.directory)
        metrics.register(services.counters, self._handler, self.directory)

    def prepare(self, connection: Connection) -> None:
        """Prepare a new connection to the listener."""
        self._handler.prepare(connection)

    def start(self, port: int) -> None:
        """Load the logs, register this broker with the port of its listener, and schedule the flushes and deletions.
        Raises OSError and StartError."""
        config = self._config
        self.directory.load()
        if config["enable.zookeeper"]:
            self._registry = self._register(port)
        flush_s = config["log.default.flush.scheduler.interval.ms"] / 1000
        cleanup_s = config["log.cleanup.interval.mins"] * 60
        self._scheduler.schedule("log-flusher-07", self.directory.flush_due, flush_s, flush_s)
        self._scheduler.schedule("log-cleanup-07", self.directory.delete_old, FIRST_CLEANUP_S, cleanup_s)
        self._has_begun = True

    def _register(self, port: int) -> Registry07:
        from kafkapy.metadata.zookeeper.client import ZooKeeperError, ZooKeeperSettings
        from kafkapy.server.kafka07.registry import Registry07

        config = self._config
        host = config["hostname"] or self._own_address()
        registry = Registry07(
            ZooKeeperSettings(config["zk.connect"], config["zk.sessiontimeout.ms"], config["zk.connectiontimeout.ms"]),
            config["brokerid"],
            (host, port),
            config.count_of,
            self._services.clock,
        )
        self.directory.on_new_topic = registry.add_topic
        try:
            registry.start(self.directory.topics())
        except ZooKeeperError as error:
            registry.close()
            raise StartError(f"the registry of Kafka 0.7, zk.connect in {self._file}: {error}") from None
        except BaseException:
            registry.close()
            raise
        return registry

    def _own_address(self) -> str:
        """Return this host's address, as 0.7 registers it. Raises StartError."""
        try:
            return socket.gethostbyname(socket.gethostname())
        except OSError as error:
            raise StartError(
                f"this host's name has no address ({error}): set 'hostname' in {self._file}, which clients connect to"
            ) from None

    def leave(self) -> None:
        """End the registration, so that clients look for other brokers."""
        registry, self._registry = self._registry, None
        if registry is not None:
            registry.close()

    def stop(self, *, clean: bool) -> None:
        """Flush and close the logs, and write the clean-shutdown marker if `clean` or if `start` was not reached. No
        request may be in progress."""
        self.leave()
        self.directory.close(clean=clean or not self._has_begun)

    def _directory_failed(self, failure: LogDirFailure) -> None:
        log.critical("topics of Kafka 0.7 are not served any more: %s", failure.message)
        # On a thread of its own: the failure may have come up on the registry's own thread, or under a log's lock.
        Thread(self.leave, "leave-07").start()
