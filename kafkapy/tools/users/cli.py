"""The command `kafkapy users`: SCRAM users, in a running cluster or before its first start."""

import getpass
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Protocol

import typer

from kafkapy.client.administration.user_admin import UserAdmin
from kafkapy.security.sasl.scram import HASHES, LEAST_ITERATIONS, MOST_ITERATIONS
from kafkapy.tools.common.errors import CallError, ToolError
from kafkapy.tools.common.files_of_values import value_of
from kafkapy.tools.common.options import DEFAULT_SERVER, Json, Servers, cluster_of, given
from kafkapy.tools.common.output import print_json, print_table

app = typer.Typer(no_args_is_help=True, help="List, add and delete the users of SCRAM, and change their passwords.")

Name = Annotated[str, typer.Argument(metavar="NAME", help="The user's name.")]
Mechanism = Annotated[
    list[str] | None,
    typer.Option(
        "--mechanism", "-m", metavar="MECHANISM", help="SCRAM-SHA-256 or SCRAM-SHA-512; may be repeated. Default: both."
    ),
]
Password = Annotated[
    str | None,
    typer.Option(
        "--password",
        metavar="PASSWORD",
        help="The password, or @FILE to read it from a file. Default: ask on a terminal, else read standard input.",
    ),
]
Iterations = Annotated[
    int, typer.Option(min=LEAST_ITERATIONS, max=MOST_ITERATIONS, help="How often the password is hashed.")
]
Offline = Annotated[
    bool,
    typer.Option(
        "--offline", help="Read or change the metadata directly, in a stopped broker's directory or in ZooKeeper."
    ),
]
Config = Annotated[
    Path | None,
    typer.Option(
        "--command-config",
        envvar="KAFKAPY_COMMAND_CONFIG",
        metavar="FILE",
        help="The client's TLS and login; with --offline: the broker's file, such as server.properties.",
    ),
]


class Users(Protocol):
    """The users of a cluster, through a broker or directly in the metadata."""

    def list_users(self) -> dict[str, dict[str, int]]: ...

    def set_password(self, user: str, password: str, mechanisms: list[str], iterations: int) -> None: ...

    def delete_user(self, user: str, mechanisms: list[str] | None = None) -> None: ...


@app.command("list")
def list_(
    context: typer.Context,
    as_json: Json = False,
    servers: Servers = DEFAULT_SERVER,
    offline: Offline = False,
    config: Config = None,
) -> None:
    """List the users with their mechanisms.

    Examples:

        kafkapy users list

        kafkapy users list --offline --command-config server.properties
    """
    with _users(context, servers, config, offline=offline) as users:
        found = users.list_users()
    if as_json:
        print_json([{"name": name, "mechanisms": found[name]} for name in sorted(found)])
    elif found:
        print_table(
            ["user", "mechanism", "iterations>"],
            [(name, mechanism, count) for name in sorted(found) for mechanism, count in sorted(found[name].items())],
        )
    else:
        print("There are no users.")


@app.command("add")
def add(
    context: typer.Context,
    name: Name,
    password: Password = None,
    mechanism: Mechanism = None,
    iterations: Iterations = LEAST_ITERATIONS,
    servers: Servers = DEFAULT_SERVER,
    offline: Offline = False,
    config: Config = None,
) -> None:
    """Add a user.

    With --offline the user is written before the first start, so that brokers can log in to each other as this user.

    Examples:

        kafkapy users add alice

        kafkapy users add admin --offline --password @secret --command-config server.properties
    """
    chosen = _mechanisms(mechanism)
    with _users(context, servers, config, offline=offline) as users:
        there = sorted(set(chosen) & set(users.list_users().get(name, {})))
        if there:
            raise ToolError(
                f"user {name} has a password for {', '.join(there)} already: change it with kafkapy users password"
            )
        users.set_password(name, _password(password), chosen, iterations)
    print(f"Added user {name} ({', '.join(chosen)}).")


@app.command("password")
def password_(
    context: typer.Context,
    name: Name,
    password: Password = None,
    iterations: Iterations = LEAST_ITERATIONS,
    servers: Servers = DEFAULT_SERVER,
    offline: Offline = False,
    config: Config = None,
) -> None:
    """Change a user's password, for all mechanisms that the user has.

    Example: kafkapy users password alice
    """
    with _users(context, servers, config, offline=offline) as users:
        known = users.list_users().get(name)
        if not known:
            raise ToolError(f"there is no user {name}: add it with kafkapy users add")
        users.set_password(name, _password(password), sorted(known), iterations)
    print(f"Changed the password of user {name} ({', '.join(sorted(known))}).")


@app.command("delete")
def delete(
    context: typer.Context,
    name: Name,
    mechanism: Mechanism = None,
    servers: Servers = DEFAULT_SERVER,
    offline: Offline = False,
    config: Config = None,
) -> None:
    """Delete a user, or only its password for one mechanism. Connections that are open stay.

    Example: kafkapy users delete alice
    """
    with _users(context, servers, config, offline=offline) as users:
        users.delete_user(name, _mechanisms(mechanism) if mechanism else None)
    print(f"Deleted the password of user {name} for {', '.join(mechanism)}." if mechanism else f"Deleted user {name}.")


def _mechanisms(given: list[str] | None) -> list[str]:
    chosen = [name.upper() for name in given or HASHES]
    for name in chosen:
        if name not in HASHES:
            raise CallError(f"--mechanism {name!r} is none of {', '.join(HASHES)}")
    return list(dict.fromkeys(chosen))


def _password(given: str | None) -> str:
    """Return the password from the option, its @FILE, the terminal, or the first line of standard input.

    Raises CallError if there is none, or if the file has more than one line.
    """
    if given is not None:
        password = value_of("--password", given)
    elif sys.stdin.isatty():
        password = getpass.getpass("Password: ")
        if getpass.getpass("The same password again: ") != password:
            raise CallError("the two passwords are different")
    else:
        password = sys.stdin.readline().rstrip("\r\n")
    if not password:
        raise CallError("the password is empty")
    if "\n" in password:
        raise CallError("the password file must have one line, with the password")
    return password


@contextmanager
def _users(context: typer.Context, servers: str, config: Path | None, *, offline: bool) -> Iterator[Users]:
    if offline:
        if config is None or not given(context, "config"):  # the file in the environment is that of a client
            raise CallError("--offline needs --command-config FILE: the broker's file, such as server.properties")
        from kafkapy.tools.users.offline import opened

        with opened(config) as users:
            yield users
        return
    with UserAdmin(cluster_of(servers, config)) as admin, admin.cluster:
        yield admin
