"""A bench for tests of followers: a broker that follows partitions of a stand-in leader, over real sockets."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from kafkapy.errors import Errors, KafkaError
from kafkapy.log.config import LogConfig
from kafkapy.log.manager import LogManager
from kafkapy.log.partition_log import PartitionLog
from kafkapy.metadata.roles import PartitionRole
from kafkapy.network.settings import Listener, NetworkSettings
from kafkapy.network.socket_server import SocketServer
from kafkapy.replica.fetch_session import FetchSettings
from kafkapy.replica.fetch_state import FetchState
from kafkapy.replica.fetchers import FollowerFetching
from kafkapy.replica.followed_partition import FollowedPartition
from kafkapy.replica.links import Link
from kafkapy.replica.manager import ReplicaManager
from kafkapy.runtime.clock import SYSTEM_CLOCK
from kafkapy.runtime.counters import Registry
from kafkapy.runtime.disk_pool import DiskPool
from kafkapy.runtime.read_pools import ReadPools
from kafkapy.runtime.scheduler import Scheduler
from kafkapy.runtime.timer import Timer

ME, LEADER = 7, 1
BROKER_EPOCH = 4711
SOON = FetchSettings(wait_ms=200, backoff_s=0.05, timeout_s=10.0)
NO_TOPIC_ID = bytes(16)


class NoHandler:
    def handle(self, connection: Any, frames: Any) -> Any:
        raise AssertionError("nobody connects")

    end_turn = handle


class FollowerBench:
    """Broker 7, which follows partitions of broker 1 at `address`. With None as the address, broker 1 is not alive."""

    def __init__(
        self,
        directory: Path,
        address: tuple[str, int] | None,
        *,
        config: dict[str, Any] | None = None,
        settings: FetchSettings = SOON,
        fetchers: int = 1,
        is_throttled: Callable[[FetchState], bool] = lambda state: False,
    ) -> None:
        self.directory = directory
        self.address = address
        self.config = LogConfig(config or {})
        self.settings = settings
        self.scheduler = Scheduler()
        self.logs = LogManager([directory], self.config, clock=SYSTEM_CLOCK, scheduler=self.scheduler)
        self.logs.load()
        self.timer = Timer(SYSTEM_CLOCK)
        self.timer.start()
        self.pool, self.read_pools = DiskPool(2), ReadPools(1)
        self.network = SocketServer(
            [Listener("A", "127.0.0.1", 0)],
            NoHandler(),
            NetworkSettings(),
            Registry(),
            self.pool,
            self.read_pools,
            SYSTEM_CLOCK,
        )
        self.network.bind()
        self.network.start()
        self.links: list[Link] = []
        self.replicas = ReplicaManager(
            self.logs, broker_id=ME, timer=self.timer, append_pool=self.pool, stall_threshold=1.0
        )
        self.fetching = FollowerFetching(
            self.link_to,
            broker_id=ME,
            broker_epoch=lambda: BROKER_EPOCH,
            logs=self.logs,
            pool=self.pool,
            timer=self.timer,
            settings=lambda: self.settings,
            fetchers=fetchers,
            is_throttled=is_throttled,
        )
        self.replicas.on_followed = self.fetching.follow
        self.replicas.on_unfollowed = self.fetching.stop

    def link_to(self, leader: int, index: int) -> Link:
        link = Link(
            f"broker {leader}",
            lambda: self.address,
            self.network,
            self.pool.submit,
            client_id=f"broker-{ME}-fetcher-{index}",
            connect_timeout_s=10.0,
        )
        self.links.append(link)
        return link

    def follow(
        self,
        topic: str = "t",
        partition: int = 0,
        *,
        epoch: int = 0,
        leader: int = LEADER,
        topic_id: bytes = NO_TOPIC_ID,
        config: dict[str, Any] | None = None,
    ) -> FollowedPartition:
        role = PartitionRole(topic, partition, topic_id, leader, epoch, 0, (leader,), (leader, ME), True)
        reason = KafkaError(Errors.NOT_LEADER_OR_FOLLOWER, "broker 1 leads it")
        return self.replicas.make_follower(role, self.config if config is None else LogConfig(config), reason)

    def log(self, topic: str = "t", partition: int = 0) -> PartitionLog:
        found = self.logs.get(topic, partition)
        assert found is not None
        return found

    def state(self, topic: str = "t", partition: int = 0) -> FetchState:
        found = self.fetching.state(topic, partition)
        assert found is not None
        return found

    def close(self) -> None:
        self.fetching.close()
        self.network.stop()
        self.timer.stop()
        self.pool.stop()
        self.read_pools.stop()
        self.logs.close()
        self.scheduler.stop()
