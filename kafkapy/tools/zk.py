"""`kafkapy zk`: look at the nodes that keep a cluster's metadata, and move them between a directory and ZooKeeper."""

import json
import sys
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from kafkapy.metadata.mirror import child_path
from kafkapy.metadata.tree import Node, NoNode, Tree, split_path
from kafkapy.tools.errors import CallError, ToolError
from kafkapy.tools.options import Json
from kafkapy.tools.output import print_json
from kafkapy.tools.zk_moves import export_tree, import_tree
from kafkapy.tools.zk_places import CommandConfig, LogDirectory, ZooKeeperAddress, opened

app = typer.Typer(no_args_is_help=True, help="Look at a cluster's nodes in ZooKeeper or in a directory; move them.")

NodePath = Annotated[str, typer.Argument(metavar="PATH", help="The path of a node, as in /brokers/topics.")]


@app.command("ls")
def ls(
    path: NodePath = "/",
    zookeeper: ZooKeeperAddress = None,
    directory: LogDirectory = None,
    command_config: CommandConfig = None,
    as_json: Json = False,
) -> None:
    """Show the names below a node.

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
            print(name)


@app.command("get")
def get(
    path: NodePath,
    zookeeper: ZooKeeperAddress = None,
    directory: LogDirectory = None,
    command_config: CommandConfig = None,
    as_json: Json = False,
) -> None:
    """Show what a node holds; with --json also its version, and the numbers of the changes that made and last set it.

    Example: kafkapy zk get /brokers/topics/flights --zookeeper localhost:2181/kafka
    """
    with opened(zookeeper, directory, command_config, _roots(path)) as tree:
        names = _children(tree, path)
        node = tree.get(path)
    if as_json:
        print_json({**_described(path, node), "children": len(names)})
    else:
        print(_text(node.data))


@app.command("tree")
def show_tree(
    path: NodePath = "/",
    data: Annotated[bool, typer.Option("--data", help="Also show what the nodes hold.")] = False,
    zookeeper: ZooKeeperAddress = None,
    directory: LogDirectory = None,
    command_config: CommandConfig = None,
    as_json: Json = False,
) -> None:
    """Show a node and all below it; with --json a list of the nodes, with what they hold.

    Examples:

        kafkapy zk tree --zookeeper localhost:2181/kafka

        kafkapy zk tree /brokers --data --directory /var/lib/kafkapy
    """
    with opened(zookeeper, directory, command_config, _roots(path)) as tree:
        _children(tree, path)  # says what is wrong with the path
        nodes = list(_below(tree, path, 0))
    if as_json:
        print_json([_described(at, node) for _, at, node in nodes])
        return
    for depth, at, node in nodes:
        name = at.rpartition("/")[2] if depth else at
        text = _text(node.data).replace("\n", " ") if data else ""
        sys.stdout.write(f"{'  ' * depth}{name}{'  (ephemeral)' if node.ephemeral else ''}{text and '  '}{text}\n")


app.command("export")(export_tree)
app.command("import")(import_tree)


def _roots(path: str) -> set[str] | None:
    """What of the tree has to be read for this path. Raises CallError for what is no path."""
    try:
        split_path(path)
    except ValueError:
        raise CallError(f"{path!r} is not the path of a node: it begins with / and does not end with one") from None
    return None if path == "/" else {path.split("/")[1]}


def _children(tree: Tree, path: str) -> list[str]:
    """Raises ToolError, with what is there, for a node that is not."""
    try:
        return tree.children(path)
    except NoNode:
        above = path
        while not tree.exists(above):
            above = split_path(above)[0]
        raise ToolError(f"There is no node {path}; the last that is there of it is {above}") from None


def _below(tree: Tree, path: str, depth: int) -> Iterator[tuple[int, str, Node]]:
    node = tree.find(path)
    if node is None:
        return  # deleted while we looked
    yield depth, path, node
    for name in tree.children(path):
        yield from _below(tree, child_path(path, name), depth + 1)


def _text(data: bytes) -> str:
    return data.decode("utf-8", "backslashreplace")


def _described(path: str, node: Node) -> dict[str, Any]:
    """JSON in a node is shown as such; other data as a text, and none as null."""
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
