"""Users directly in the metadata: in the first log directory of a broker that does not run, or in ZooKeeper.

Like `kafka-configs --zookeeper`, this creates the first user before brokers that log in to each other are started.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kafkapy.errors import Errors, KafkaError
from kafkapy.metadata import paths
from kafkapy.metadata.configs import ConfigRegistry
from kafkapy.metadata.local.tree import FILE_NAME, LocalTree
from kafkapy.metadata.tree import Tree, wait
from kafkapy.metadata.users import UserRegistry
from kafkapy.security.sasl.scram import new_credential
from kafkapy.tools.common.errors import ToolError
from kafkapy.tools.zk.location import config_of, zookeeper_settings_of


class OfflineUsers:
    """The users in a metadata tree."""

    def __init__(self, tree: Tree) -> None:
        tree.ensure(paths.USERS, paths.CONFIG_CHANGES)  # running brokers are notified through the latter
        self._users = UserRegistry(tree, ConfigRegistry(tree))

    def list_users(self) -> dict[str, dict[str, int]]:
        """Return the number of iterations of each credential, by user and mechanism."""
        found = {name: self._users.iterations(name) for name in self._users.all()}
        return {name: mechanisms for name, mechanisms in found.items() if mechanisms}

    def set_password(self, user: str, password: str, mechanisms: list[str], iterations: int) -> None:
        """Create the user, or change the password, for these mechanisms."""
        wait(self._users.alter, user, {name: new_credential(name, password, iterations) for name in mechanisms})

    def delete_user(self, user: str, mechanisms: list[str] | None = None) -> None:
        """Delete the user's credentials for these mechanisms; None means all that the user has."""
        chosen = mechanisms if mechanisms is not None else list(self._users.iterations(user))
        if not chosen:
            raise KafkaError(Errors.RESOURCE_NOT_FOUND, f"there is no user {user}")
        wait(self._users.alter, user, dict.fromkeys(chosen))


@contextmanager
def opened(file: Path) -> Iterator[OfflineUsers]:
    """Context manager that yields the users in the metadata that a broker's properties file names.

    Raises ToolError, ZooKeeperError, LocalTreeError, and the errors of `config_of`.
    """
    config = config_of(None, file)
    if config["zookeeper.connect"]:
        from kafkapy.metadata.zookeeper.tree import ZooKeeperTree

        tree: Tree = ZooKeeperTree(zookeeper_settings_of(None, file)._replace(make_chroot=True), {"config"})
        try:
            yield OfflineUsers(tree)
        finally:
            tree.close()
        return
    with _embedded(config.log_dirs[0].absolute()) as users:
        yield users


@contextmanager
def _embedded(directory: Path) -> Iterator[OfflineUsers]:
    from kafkapy.server.adoption.adopt import locked
    from kafkapy.server.adoption.errors import AdoptionError
    from kafkapy.server.adoption.tree import give_to_owner

    directory.mkdir(parents=True, exist_ok=True)
    others = [one.name for one in directory.iterdir() if not one.name.startswith(".")]
    file = directory / FILE_NAME
    is_new = not file.exists()
    if is_new and others:
        raise ToolError(
            f"{directory} holds {others[0]} but no metadata ({FILE_NAME}): name the broker's first log directory in "
            "log.dirs, or start the broker once"
        )
    try:
        with locked([directory]):
            tree = LocalTree(file)
            if is_new:
                give_to_owner(file, directory)
            try:
                yield OfflineUsers(tree)
            finally:
                tree.close()
    except AdoptionError as error:
        raise ToolError(f"{error}, or leave out --offline") from None
