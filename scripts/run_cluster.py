"""The cluster of scripts/cluster: starts brokers and a ZooKeeper, prints their addresses, and waits for Ctrl-C."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence

import kafkapy
from kafkapy.client.errors import ClientError
from kafkapy.testing.broker import BrokerFailed
from kafkapy.testing.zookeeper import JARS_VARIABLE, ZooKeeperFailed


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the cluster until SIGINT or SIGTERM. Return the exit code: 0, or 1 if the cluster does not start or stop."""
    given = _options().parse_args(arguments)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    cluster = kafkapy.Cluster(
        given.brokers,
        zookeeper=given.zookeeper,
        zookeeper_jars=given.zookeeper_jars,
        directory=given.directory,
        config=dict(given.override),
    )
    try:
        cluster.start()
        _show(cluster, kept=given.directory is not None)
        while True:
            signal.pause()
    except KeyboardInterrupt:
        return _stop(cluster)
    except (BrokerFailed, ZooKeeperFailed, ClientError) as error:
        print(f"scripts/cluster: {error}", file=sys.stderr)
        return 1


def _stop(cluster: kafkapy.Cluster) -> int:
    print("Stopping.", flush=True)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second Ctrl-C would leave brokers behind
    try:
        cluster.stop()
    except BrokerFailed as error:
        print(f"scripts/cluster: {error}", file=sys.stderr)
        return 1
    return 0


def _show(cluster: kafkapy.Cluster, *, kept: bool) -> None:
    for number in cluster.running:
        broker = cluster.broker(number)
        controller = ", the controller" if number == cluster.controller_id else ""
        print(f"broker {number}: {broker.bootstrap_servers} data={broker.log_dir} pid={broker.pid}{controller}")
    print(f"ZooKeeper: {cluster.zookeeper}")
    print(f"export KAFKAPY_BOOTSTRAP_SERVER={cluster.bootstrap_servers}")
    print(f"Ctrl-C stops all{'' if kept else ' and removes the data'}.", flush=True)


def _setting(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE, as in num.partitions=4")
    return key, value


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of brokers from 1 on")
    return int(text)


def _options() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(prog="scripts/cluster", description="Run several brokers on this host.")
    options.add_argument("--brokers", type=_count, default=3, metavar="N", help="how many (default: 3)")
    options.add_argument("--zookeeper", metavar="HOST:PORT/CHROOT", help="use this ZooKeeper instead of starting one")
    options.add_argument(
        "--zookeeper-jars", metavar="DIR", help=f"the directory with ZooKeeper's jars (default: ${JARS_VARIABLE})"
    )
    options.add_argument("--directory", metavar="DIR", help="keep the data here (default: a new one that is removed)")
    options.add_argument(
        "-o",
        "--override",
        type=_setting,
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a setting of all brokers; may be repeated",
    )
    return options


if __name__ == "__main__":
    sys.exit(main())
