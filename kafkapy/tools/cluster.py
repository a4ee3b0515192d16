"""The command `kafkapy cluster`: shows the brokers of a cluster."""

from kafkapy.client.cluster import Cluster
from kafkapy.tools.common.options import DEFAULT_SERVER, CommandConfig, Json, Servers, cluster_of
from kafkapy.tools.common.output import counted, print_json, print_table
from kafkapy.tools.topics.interface import Document


def cluster(servers: Servers = DEFAULT_SERVER, command_config: CommandConfig = None, as_json: Json = False) -> None:
    """Show the brokers: address, rack, controller, partitions led, replicas, and those of them that are not in sync.

    A broker that is not running is shown if it has replicas.

    Examples:

        kafkapy cluster

        kafkapy cluster --json
    """
    with cluster_of(servers, command_config) as asked:
        asked.refresh()
        found = _document(asked)
    if as_json:
        print_json(found)
        return
    leaderless = found["leaderless"]
    print(
        f"Cluster {found['id']}, {counted(found['partitions'], 'partition')}"
        f"{f', {leaderless:,} without a leader' if leaderless else ''}"
    )
    print_table(
        ["broker>", "address", "rack", "controller", "leads>", "replicas>", "not in sync>"],
        [
            (
                one["id"],
                f"{one['host']}:{one['port']}" if one["running"] else "not running",
                one["rack"],
                "yes" if one["controller"] else "",
                one["leads"],
                one["replicas"],
                one["notInSync"],
            )
            for one in found["brokers"]
        ],
    )


def _document(cluster: Cluster) -> Document:
    """Return what the cluster's metadata says: its id, its numbers of partitions, and a document for each broker."""
    partitions = [one for topic in cluster.topics.values() for one in topic.partitions.values()]
    counts = {number: {"leads": 0, "replicas": 0, "notInSync": 0} for number in cluster.brokers}
    for one in partitions:
        for number in one.replicas:
            count = counts.setdefault(number, {"leads": 0, "replicas": 0, "notInSync": 0})
            count["leads"] += number == one.leader
            count["replicas"] += 1
            count["notInSync"] += number not in one.isr
    brokers = []
    for number in sorted(counts):
        live = cluster.brokers.get(number)
        brokers.append(
            {
                "id": number,
                "host": live.host if live else None,
                "port": live.port if live else None,
                "rack": live.rack if live else None,
                "running": live is not None,
                "controller": number == cluster.controller_id,
                **counts[number],
            }
        )
    return {
        "id": cluster.cluster_id,
        "controller": cluster.controller_id if cluster.controller_id >= 0 else None,
        "partitions": len(partitions),
        "leaderless": sum(one.leader < 0 for one in partitions),
        "brokers": brokers,
    }
