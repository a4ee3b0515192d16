"""The command `kafkapy zk`: shows the nodes of a cluster's metadata, and moves them between a log directory and
ZooKeeper."""

import json
import sys
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from kafkapy.metadata.tree import Node, NoNode, Tree, split_path
from kafkapy.metadata.zookeeper.node_cache import child_path
from kafkapy.runtime.printable import printable
from kafkapy.tools.common.errors import CallError, ToolError
from kafkapy.tools.common.options import Json
from kafkapy.tools.common.output import print_json
from kafkapy.tools.zk.location import CommandConfig, LogDirectory, ZooKeeperAddress, opened
from kafkapy.tools.zk.secrets import ShowSecrets, without_secrets
from kafkapy.tools.zk.transfer import export_tree, import_tree

app = typer.Typer(
    no_args_is_help=True, help="Show a cluster's metadata nodes in ZooKeeper or in a log directory; move them."
)

NodePath = Annotated[str, typer.Argument(metavar="PATH", help="The path of a node, as in /brokers/topics.")]


@app.command("ls")
def ls(
    path: NodePath = "/",
    zookeeper: ZooKeeperAddress = None,
    directory: LogDirectory = None,
    command_config: CommandConfig = None,
    as_json: Json = False,
) -> None:
    """List the children of a node.

    Examples:

        kafkapy zk ls /brokers/topics --zookeeper localhost:2181/kafka

        kafkapy zk ls /config --directory /var/lib/kafkapy
    """
    with opened(zookeeper, directory, command_config, _roots(path)) as tree:
        names = _children(tree, path)
    if as_json:
        print_json(names)
    else:
        for name in names:
            print(printable(name))


@app.command("get")
def get(
    path: NodePath,
    zookeeper: ZooKeeperAddress = None,
    directory: LogDirectory = None,
    command_config: CommandConfig = None,
    as_json: Json = False,
    show_secrets: ShowSecrets = False,
) -> None:
    """Show the data of a node; with --json also its version, and the numbers (zxids) of its first and last change.

    Example: kafkapy zk get /brokers/topics/flights --zookeeper localhost:2181/kafka
    """
    with opened(zookeeper, directory, command_config, _roots(path)) as tree:
        names = _children(tree, path)
        node = tree.get(path)
    if not show_secrets:
        node = without_secrets(path, node)
    if as_json:
        print_json({**_described(path, node), "children": len(names)})
    else:
        print(_text(node.data))


@app.command("tree")
def show_tree(
    path: NodePath = "/",
    data: Annotated[bool, typer.Option("--data", help="Also show the data of the nodes.")] = False,
    zookeeper: ZooKeeperAddress = None,
    directory: LogDirectory = None,
    command_config: CommandConfig = None,
    as_json: Json = False,
    show_secrets: ShowSecrets = False,
) -> None:
    """Show a node and all nodes below it; with --json a list of the nodes with their data.

    Examples:

        kafkapy zk tree --zookeeper localhost:2181/kafka

        kafkapy zk tree /brokers --data --directory /var/lib/kafkapy
    """
    with opened(zookeeper, directory, command_config, _roots(path)) as tree:
        _children(tree, path)  # raises if there is no such node
        nodes = list(_below(tree, path, 0))
    if not show_secrets:
        nodes = [(depth, at, without_secrets(at, node)) for depth, at, node in nodes]
    if as_json:
        print_json([_described(at, node) for _, at, node in nodes])
        return
    for depth, at, node in nodes:
        name = at.rpartition("/")[2] if depth else at
        text = _text(node.data).replace("\n", " ") if data else ""
        line = f"{'  ' * depth}{name}{'  (ephemeral)' if node.ephemeral else ''}{text and '  '}{text}"
        sys.stdout.write(f"{printable(line)}\n")


app.command("export")(export_tree)
app.command("import")(import_tree)


def _roots(path: str) -> set[str] | None:
    """Return the names of the top-level nodes that must be read to find the node at this path; None means all. Raises
    CallError for an invalid path."""
    try:
        split_path(path)
    except ValueError:
        raise CallError(f"{path!r} is not the path of a node: it begins with / and does not end with one") from None
    return None if path == "/" else {path.split("/")[1]}


def _children(tree: Tree, path: str) -> list[str]:
    """Return the names of a node's children. Raises ToolError for a missing node; the message names the nearest
    existing node above it."""
    try:
        return tree.children(path)
    except NoNode:
        above = path
        while not tree.exists(above):
            above = split_path(above)[0]
        raise ToolError(f"There is no node {path}; the nearest that exists is {above}") from None


def _below(tree: Tree, path: str, depth: int) -> Iterator[tuple[int, str, Node]]:
    node = tree.find(path)
    if node is None:
        return  # deleted since its parent was read
    yield depth, path, node
    for name in tree.children(path):
        yield from _below(tree, child_path(path, name), depth + 1)


def _text(data: bytes) -> str:
    return data.decode("utf-8", "backslashreplace")


def _described(path: str, node: Node) -> dict[str, Any]:
    """Return a node as a JSON document. Data that is a JSON object is included as such, other data as text, and no data
    as null."""
    value: Any = None
    if node.data:
        value = _text(node.data)
        try:
            parsed = json.loads(node.data)
            value = parsed if isinstance(parsed, dict) else value
        except ValueError:
            pass
    return {
        "path": path,
        "data": value,
        "version": node.version,
        "created": node.created,
        "changed": node.changed,
        "ephemeral": node.ephemeral,
    }
