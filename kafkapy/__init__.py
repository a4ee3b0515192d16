"""kafkapy: a Kafka-protocol broker for Linux in Python with Cython hot paths.

with kafkapy.Broker() as broker:
    broker.bootstrap_servers  # "127.0.0.1:41873"

with kafkapy.Cluster(3) as cluster:
    cluster.kill(cluster.controller_id)
"""

from typing import TYPE_CHECKING

from kafkapy.version import VERSION

if TYPE_CHECKING:
    from kafkapy.testing.broker import Broker
    from kafkapy.testing.cluster import Cluster

__all__ = ["Broker", "Cluster", "__version__"]
__version__ = VERSION


def __getattr__(name: str) -> object:
    # Imported on first use: every other module imports this package first, and a broker has to start fast.
    if name == "Broker":
        from kafkapy.testing.broker import Broker

        return Broker
    if name == "Cluster":
        from kafkapy.testing.cluster import Cluster

        return Cluster
    raise AttributeError(f"module 'kafkapy' has no attribute {name!r}")
