"""The cluster of scripts/cluster: starts brokers and a ZooKeeper, prints their addresses, and waits for Ctrl-C."""

from __future__ import annotations

import argparse
import contextlib
import signal
import sys
from collections.abc import Sequence

import kafkapy
from kafkapy.client.errors import ClientError
from kafkapy.testing.broker import BrokerFailed
from kafkapy.testing.zookeeper import JARS_VARIABLE, ZooKeeperFailed


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the cluster until SIGINT, SIGTERM or SIGHUP. Return the exit code: 0, or 1 if the cluster does not start or
    stop."""
    given = _options().parse_args(arguments)
    for number in (signal.SIGTERM, signal.SIGHUP):  # SIGHUP: the terminal was closed, which the brokers do not notice
        signal.signal(number, signal.default_int_handler)
    cluster = kafkapy.Cluster(
        given.brokers,
        zookeeper=given.zookeeper,
        zookeeper_jars=given.zookeeper_jars,
        directory=given.directory,
        config=dict(given.override),
    )
    try:
        _run(cluster, kept=given.directory is not None)
    except (BrokerFailed, ZooKeeperFailed, ClientError) as error:
        print(f"scripts/cluster: {error}", file=sys.stderr)
        return 1
    return 0


def _run(cluster: kafkapy.Cluster, *, kept: bool) -> None:
    """Start the cluster, wait for a signal, and stop it."""
    try:
        cluster.start()
        _show(cluster, kept=kept)
        while True:
            signal.pause()
    except KeyboardInterrupt:
        with contextlib.suppress(OSError):  # the terminal may be gone
            print("Stopping.", flush=True)
    finally:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # a second one would leave brokers behind
            signal.signal(number, signal.SIG_IGN)
        cluster.stop()


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
