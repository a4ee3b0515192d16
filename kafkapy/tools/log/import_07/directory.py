"""Imports logs of Kafka 0.7 into a new log directory. `kafkapy log adopt` then makes it the directory of a broker."""

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from kafkapy.errors import KafkaError
from kafkapy.log.config import LogConfig
from kafkapy.log.manager import LogManager
from kafkapy.log.partition_log import PartitionLog
from kafkapy.record.batch import BatchBuilder
from kafkapy.runtime.clock import SYSTEM_CLOCK
from kafkapy.runtime.scheduler import Scheduler
from kafkapy.tools.common.errors import CallError
from kafkapy.tools.log.import_07.targets import Demand, Writer

_BATCH = 256 * 1024


class DirectoryTarget:
    """A Target that imports into partitions of a new log directory, which no broker uses yet. The constructor raises
    CallError if it is the directory of a broker."""

    def __init__(self, directory: Path) -> None:
        for name in ("meta.properties", "kafkapy-metadata.db"):
            if (directory / name).exists():
                raise CallError(f"--to {directory} is the directory of a broker: use --bootstrap-server")
        self._scheduler = Scheduler(SYSTEM_CLOCK, 1)
        self._config = LogConfig({"retention.ms": -1, "retention.bytes": -1, "max.message.bytes": (1 << 31) - 1})
        self._manager = LogManager([directory], self._config, clock=SYSTEM_CLOCK, scheduler=self._scheduler)
        self._manager.load()

    def __enter__(self) -> "DirectoryTarget":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._manager.close()
        self._scheduler.stop()

    def offsets(self, topic: str, partition: int) -> tuple[int, int]:
        log = self._manager.get(topic, partition)
        return (0, 0) if log is None else (log.log_start_offset, log.log_end_offset)

    def prepare(self, demands: Mapping[str, Demand]) -> None:
        for topic, demand in demands.items():
            for partition in range(demand.partitions):
                self._manager.create(topic, partition, None, self._config)

    def writer(self, topic: str, partition: int, codec: int, next_offset: int) -> Writer:
        log = self._manager.get(topic, partition)
        assert log is not None
        return _LogWriter(log, codec)


class _LogWriter:
    """A Writer that appends records directly to a partition's log."""

    def __init__(self, log: PartitionLog, codec: int) -> None:
        self._log = log
        self._codec = codec
        self._builder = BatchBuilder(codec, _BATCH)

    def append(self, value: bytes, timestamp: int) -> None:
        if not self._builder.append(timestamp, None, value):
            self._write()
            self._builder.append(timestamp, None, value)

    def flush(self) -> None:
        if self._builder.count:
            self._write()

    def _write(self) -> None:
        records = memoryview(bytearray(self._builder.build()))
        self._builder = BatchBuilder(self._codec, _BATCH)
        verdicts = self._log.append([records], 0)
        assert isinstance(verdicts, list)  # may block, so the result is never BUSY
        for verdict in verdicts:
            if isinstance(verdict, KafkaError):
                raise verdict
