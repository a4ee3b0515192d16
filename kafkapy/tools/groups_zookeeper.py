"""`kafkapy groups ... --zookeeper`: the same commands for groups whose members, and mostly offsets, are in ZooKeeper.

Source: Kafka's ConsumerGroupCommand --zookeeper of 0.9 to 1.x, which says the same numbers.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from kafkapy.client.errors import ClientError
from kafkapy.errors import KafkaError
from kafkapy.tools.errors import ToolError
from kafkapy.tools.group_answers import complain
from kafkapy.tools.group_homes_zookeeper import InBoth, check_name, nodes_of
from kafkapy.tools.group_views_zookeeper import Described, document, in_zookeeper, print_members, print_offsets
from kafkapy.tools.main import sentence_of
from kafkapy.tools.output import counted, print_json, print_table
from kafkapy.tools.partition_words import in_words

if TYPE_CHECKING:
    from kafkapy.client.original.group_nodes import OldGroup


class ZooKeeperGroups:
    """The commands on the ZooKeeper that --zookeeper names; `file` is --command-config. Each raises CallError,
    ToolError, KeeperError and as `zk_places.keeper_of`."""

    def __init__(self, zookeeper: str, file: Path | None) -> None:
        self._zookeeper = zookeeper
        self._file = file

    def show_list(self, *, as_json: bool) -> None:
        with self._opened() as home:
            found = home.nodes.member_ids(home.names())
        if as_json:
            print_json([{"group": name, "members": members} for name, members in found.items()])
        elif found:
            print_table(["group", "members>"], [(name, len(members)) for name, members in found.items()])
        else:
            print("There are no groups in ZooKeeper.")

    def describe(self, names: Sequence[str], *, members: bool, as_json: bool) -> None:
        with self._opened() as home:
            home.check_there(names)
            groups = [home.nodes.describe(name) for name in names or home.names()]
            found = [Described(group, {}, {}) for group in groups] if members else _described(home, groups)
        if as_json:
            print_json([document(one, with_offsets=not members) for one in found])
            return
        for number, one in enumerate(found):
            if number:
                print()
            print_members(one) if members else print_offsets(one)
        if not found:
            print("There are no groups in ZooKeeper.")

    def delete(self, names: Sequence[str], *, if_exists: bool) -> None:
        failed = []
        with self._opened() as home:
            for name in names:
                check_name(name)
                if not home.nodes.exists(name):
                    if if_exists:
                        print(f"Group {name} is not there.")
                    else:
                        failed.append(f"there is no group {name!r} in ZooKeeper at {self._zookeeper}")
                elif home.nodes.delete(name):
                    print(f"Deleted group {name} from ZooKeeper.")
                else:
                    failed.append(f"group {name!r} still has members in ZooKeeper: stop them first")
        complain(failed)

    def delete_offsets(self, name: str, wanted: Mapping[str, list[int] | None]) -> None:
        with self._opened() as home:
            home.check_there([name])
            home.refuse_active([name])
            group = home.nodes.describe(name)
            for topic, numbers in wanted.items():
                its = [where for where in group.partitions if where[0] == topic]
                asked = its if numbers is None else [(topic, str(number)) for number in numbers]
                missing = [where for where in asked if where not in group.offsets] if numbers is not None else []
                if missing or not its:
                    what = in_words((topic, int(number)) for _, number in missing) if missing else f"topic {topic!r}"
                    raise ToolError(f"group {name!r} has committed nothing for {what} in ZooKeeper")
                if numbers is None:
                    if not home.nodes.delete_topic(name, topic):
                        raise ToolError(f"group {name!r} has got members meanwhile: stop them first")
                else:
                    home.nodes.delete_offsets(name, asked)
                count = len([where for where in asked if where in group.offsets])
                print(f"Deleted {counted(count, 'offset')} of group {name} in topic {topic} from ZooKeeper.")

    @contextmanager
    def _opened(self) -> Iterator[InBoth]:
        with nodes_of(self._zookeeper, self._file) as nodes, InBoth(nodes, self._zookeeper) as home:
            yield home


def _described(home: InBoth, groups: Sequence[OldGroup]) -> list[Described]:
    """What no broker tells is left out, and standard error says so."""
    try:
        ends = home.ends(groups)
        return [Described(group, home.kept(group), ends) for group in groups]
    except (KafkaError, ClientError, ToolError) as error:
        print(
            f"kafkapy: only what is in ZooKeeper is shown, no broker says more: {sentence_of(error)}", file=sys.stderr
        )
        return [Described(group, in_zookeeper(group), {}) for group in groups]
