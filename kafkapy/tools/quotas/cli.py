"""The command `kafkapy quotas`: quotas of users, client ids and IP addresses."""

import math
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from kafkapy.client.administration.quota_admin import Entity, QuotaAdmin, Usage
from kafkapy.errors import Errors, KafkaError
from kafkapy.metadata.quotas import CLIENT_KEYS, CONNECTIONS
from kafkapy.tools.common.errors import CallError, ToolError
from kafkapy.tools.common.options import DEFAULT_SERVER, CommandConfig, Json, Servers, cluster_of, key_values
from kafkapy.tools.common.output import print_json, print_table
from kafkapy.tools.quotas.levels import applying

app = typer.Typer(no_args_is_help=True, help="List, set and delete quotas, and show which apply to a client.")

KINDS = ("user", "client-id", "ip")
KEYS = (*CLIENT_KEYS, CONNECTIONS)

User = Annotated[str | None, typer.Option("--user", metavar="NAME", help="Of this user.")]
UserDefaults = Annotated[bool, typer.Option("--user-defaults", help="Of all users without a quota of their own.")]
Client = Annotated[str | None, typer.Option("--client", metavar="NAME", help="Of this client id.")]
ClientDefaults = Annotated[
    bool, typer.Option("--client-defaults", help="Of all client ids without a quota of their own.")
]
Ip = Annotated[str | None, typer.Option("--ip", metavar="ADDRESS", help="Of this IP address or host name.")]
IpDefaults = Annotated[bool, typer.Option("--ip-defaults", help="Of all addresses without a quota of their own.")]


@app.command("list")
def list_(as_json: Json = False, servers: Servers = DEFAULT_SERVER, config: CommandConfig = None) -> None:
    """List all quotas.

    Example: kafkapy quotas list
    """
    with QuotaAdmin(cluster_of(servers, config)) as admin, admin.cluster:
        found = sorted(admin.list_quotas(), key=lambda one: [_order(one[0], kind) for kind in KINDS])
    if as_json:
        print_json([{"entity": dict(entity), "quotas": _plain(quotas)} for entity, quotas in found])
    elif found:
        print_table(
            ["user", "client id", "ip", "quota", "limit>"],
            [
                (*(_name(entity, kind) for kind in KINDS), key, _number(value))
                for entity, quotas in found
                for key, value in sorted(quotas.items())
            ],
        )
    else:
        print("There are no quotas.")


@app.command("set")
def set_(
    quotas: Annotated[list[str], typer.Argument(metavar="QUOTA=VALUE...", help=f"{', '.join(KEYS)}.")],
    user: User = None,
    user_defaults: UserDefaults = False,
    client: Client = None,
    client_defaults: ClientDefaults = False,
    ip: Ip = None,
    ip_defaults: IpDefaults = False,
    servers: Servers = DEFAULT_SERVER,
    config: CommandConfig = None,
) -> None:
    """Set quotas: of a user, of a client id, of a client id of a user, or of an IP address. Other quotas are kept.

    Examples:

        kafkapy quotas set --user alice producer_byte_rate=1048576 consumer_byte_rate=2097152

        kafkapy quotas set --user-defaults --client-defaults request_percentage=20

        kafkapy quotas set --ip-defaults connection_creation_rate=50
    """
    entity = _entity(user, user_defaults, client, client_defaults, ip, ip_defaults)
    changes = {key: _value(key, text) for key, text in key_values("QUOTA=VALUE", quotas).items()}
    with QuotaAdmin(cluster_of(servers, config)) as admin, admin.cluster:
        admin.alter(entity, changes)
    print(f"Set {', '.join(f'{key}={_number(value)}' for key, value in changes.items())} of {_text(entity)}.")


@app.command("delete")
def delete(
    quotas: Annotated[
        list[str] | None, typer.Argument(metavar="QUOTA...", help="Which quotas. Default: all of them.")
    ] = None,
    user: User = None,
    user_defaults: UserDefaults = False,
    client: Client = None,
    client_defaults: ClientDefaults = False,
    ip: Ip = None,
    ip_defaults: IpDefaults = False,
    servers: Servers = DEFAULT_SERVER,
    config: CommandConfig = None,
) -> None:
    """Delete quotas of a user, a client id or an IP address.

    Example: kafkapy quotas delete --user alice producer_byte_rate
    """
    entity = _entity(user, user_defaults, client, client_defaults, ip, ip_defaults)
    with QuotaAdmin(cluster_of(servers, config)) as admin, admin.cluster:
        there = next((found for one, found in admin.list_quotas() if one == entity), {})
        chosen = list(dict.fromkeys(quotas or there))
        missing = [key for key in chosen if key not in there]
        if missing or not chosen:
            raise ToolError(f"there is no {', '.join(missing) or 'quota'} of {_text(entity)}: see kafkapy quotas list")
        admin.alter(entity, dict.fromkeys(chosen))
    print(f"Deleted {', '.join(chosen)} of {_text(entity)}.")


@app.command("show")
def show(
    client: Annotated[str, typer.Argument(metavar="CLIENT", help="The client id.")],
    user: Annotated[str, typer.Option("--user", metavar="NAME", help="The user of the client.")] = "ANONYMOUS",
    as_json: Json = False,
    servers: Servers = DEFAULT_SERVER,
    config: CommandConfig = None,
) -> None:
    """Show which quotas apply to a client, for whom they were set, and how much of them is in use on each broker.

    Example: kafkapy quotas show billing --user alice
    """
    with QuotaAdmin(cluster_of(servers, config)) as admin, admin.cluster:
        found = applying(admin.list_quotas(), user, client)
        admin.cluster.refresh([])
        used = {node: _usage(admin, node, user, client) for node in sorted(admin.cluster.brokers)}
    rows = []
    for key, (entity, limit) in found.items():
        for node, quotas in used.items():
            share = None if quotas is None else next((one.used for one in quotas if one.key == key), None)
            rows.append((key, entity, limit, node, share))
    if as_json:
        print_json(
            [
                {"quota": key, "limit": limit, "entity": dict(entity), "broker": node, "used": share}
                for key, entity, limit, node, share in rows
            ]
        )
    elif rows:
        print_table(
            ["quota", "set for", "limit>", "broker>", "in use>", "of limit>"],
            [
                (
                    key,
                    _text(entity),
                    _number(limit),
                    node,
                    "unknown" if share is None else _number(share),
                    "" if share is None else f"{share / limit:.0%}",
                )
                for key, entity, limit, node, share in rows
            ],
        )
    else:
        print(f"No quota applies to the client {client} of user {user}.")


def _usage(admin: QuotaAdmin, node: int, user: str, client: str) -> list[Usage] | None:
    try:
        return admin.usage(node, user, client)
    except KafkaError as error:
        if error.code == Errors.UNSUPPORTED_VERSION:  # a broker of Apache Kafka
            return None
        raise


def _entity(
    user: str | None, user_defaults: bool, client: str | None, client_defaults: bool, ip: str | None, ip_defaults: bool
) -> Entity:
    entity: dict[str, str | None] = {}
    for kind, option, name, default in (
        ("user", "--user", user, user_defaults),
        ("client-id", "--client", client, client_defaults),
        ("ip", "--ip", ip, ip_defaults),
    ):
        if name is not None and default:
            raise CallError(f"say one of {option} and {option}-defaults, not both")
        if name is not None or default:
            entity[kind] = None if default else name
    if not entity:
        raise CallError("say whose quotas: --user, --client or --ip with a name, or --user-defaults and so on")
    return entity


def _value(key: str, text: str) -> float:
    if key not in KEYS:
        raise CallError(f"{key!r} is no quota: it must be one of {', '.join(KEYS)}")
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or value <= 0:
        raise CallError(f"{key}={text}: the value must be a number greater than 0")
    return value


def _order(entity: Entity, kind: str) -> tuple[int, str]:
    if kind not in entity:
        return 2, ""
    name = entity[kind]
    return (1, "") if name is None else (0, name)


def _name(entity: Entity, kind: str) -> str:
    return "" if kind not in entity else entity[kind] or "<default>"


def _text(entity: Entity) -> str:
    words = {"user": "user", "client-id": "client id", "ip": "IP address"}
    return ", ".join(
        f"the default {words[kind]}" if entity[kind] is None else f"{words[kind]} {entity[kind]}"
        for kind in KINDS
        if kind in entity
    )


def _number(value: float) -> str:
    return f"{value:.0f}" if value == round(value) and abs(value) < 1e15 else f"{value:.6g}"


def _plain(quotas: Mapping[str, float]) -> dict[str, Any]:
    return {key: int(value) if math.isfinite(value) and value == int(value) else value for key, value in quotas.items()}
