"""The command `kafkapy acls`: lists, adds, removes and tests ACLs. The options are those of Kafka's kafka-acls."""

import sys
from collections.abc import Iterable
from typing import Annotated

import typer

from kafkapy.client.administration.acl_admin import AclAdmin, shown
from kafkapy.errors import KafkaError
from kafkapy.security.acls.bindings import WILDCARD, Binding, Filter, display_name
from kafkapy.security.acls.hosts import host_text
from kafkapy.security.acls.index import index_of
from kafkapy.security.acls.rules import Client, decide
from kafkapy.tools.acls.wanted import Resources, Who, matching, operation_of, principal_of, resource_of, wanted
from kafkapy.tools.common.errors import CallError
from kafkapy.tools.common.options import DEFAULT_SERVER, CommandConfig, Json, Servers, cluster_of
from kafkapy.tools.common.output import counted, print_json, print_table

FAILED = 1

app = typer.Typer(no_args_is_help=True, help="Allow and deny users to use topics, groups and the cluster (ACLs).")

Names = list[str] | None
Topics = Annotated[Names, typer.Option("--topic", metavar="NAME", help="A topic, or '*'; may be repeated.")]
Groups = Annotated[Names, typer.Option("--group", metavar="NAME", help="A consumer group; may be repeated.")]
OfCluster = Annotated[bool, typer.Option("--cluster", help="The cluster itself.")]
Ids = Annotated[Names, typer.Option("--transactional-id", metavar="ID", help="A transactional id; may be repeated.")]
Tokens = Annotated[Names, typer.Option("--delegation-token", metavar="ID", help="A delegation token.")]
Users = Annotated[Names, typer.Option("--user-principal", metavar="USER", help="A user, as a resource: User:NAME.")]
OfPattern = Annotated[
    str,
    typer.Option(
        "--resource-pattern-type",
        metavar="TYPE",
        help="How names match: literal, or prefixed (the beginnings of names); list and remove also take any, and "
        "match (all patterns that match the name).",
    ),
]
Allowed = Annotated[
    Names, typer.Option("--allow-principal", metavar="USER", help="Who is allowed: User:NAME or User:*; repeatable.")
]
Denied = Annotated[Names, typer.Option("--deny-principal", metavar="USER", help="Who is denied, even if also allowed.")]
AllowedHosts = Annotated[
    Names, typer.Option("--allow-host", metavar="ADDRESS", help="The address of the allowed clients. Default: all.")
]
DeniedHosts = Annotated[
    Names, typer.Option("--deny-host", metavar="ADDRESS", help="The address of the denied clients. Default: all.")
]
Operations = Annotated[
    Names, typer.Option("--operation", metavar="OPERATION", help="Such as Read or Write; repeatable. Default: All.")
]
Producer = Annotated[bool, typer.Option("--producer", help="What a producer needs: Write, Describe, Create.")]
Consumer = Annotated[bool, typer.Option("--consumer", help="What a consumer needs: Read, Describe, Read on the group.")]
Idempotent = Annotated[bool, typer.Option("--idempotent", help="With --producer: IdempotentWrite on the cluster.")]


@app.command("list")
def list_(
    topic: Topics = None,
    group: Groups = None,
    cluster: OfCluster = False,
    transactional_id: Ids = None,
    delegation_token: Tokens = None,
    user_principal: Users = None,
    pattern_type: OfPattern = "any",
    principal: Annotated[
        Names, typer.Option("--principal", metavar="USER", help="Only ACLs of this user; may be repeated.")
    ] = None,
    as_json: Json = False,
    servers: Servers = DEFAULT_SERVER,
    command_config: CommandConfig = None,
) -> None:
    """List ACLs: all, or those of some resources or users.

    Examples:

        kafkapy acls list

        kafkapy acls list --topic flights --resource-pattern-type match

        kafkapy acls list --principal User:alice
    """
    resources = Resources(topic, group, cluster, transactional_id, delegation_token, user_principal, pattern_type)
    filters = resources.filters()
    users = {principal_of(one) for one in principal or ()}
    with AclAdmin(cluster_of(servers, command_config)) as admin, admin.cluster:
        found = {acl for which in filters for acl in admin.list_acls(which)}
    _print(sorted(acl for acl in found if not users or acl.entry.principal in users), as_json=as_json)


@app.command("add")
def add(
    topic: Topics = None,
    group: Groups = None,
    cluster: OfCluster = False,
    transactional_id: Ids = None,
    delegation_token: Tokens = None,
    user_principal: Users = None,
    pattern_type: OfPattern = "literal",
    allow_principal: Allowed = None,
    allow_host: AllowedHosts = None,
    deny_principal: Denied = None,
    deny_host: DeniedHosts = None,
    operation: Operations = None,
    producer: Producer = False,
    consumer: Consumer = False,
    idempotent: Idempotent = False,
    servers: Servers = DEFAULT_SERVER,
    command_config: CommandConfig = None,
) -> None:
    """Add ACLs, all in one request. They take effect at once.

    Examples:

        kafkapy acls add --allow-principal User:alice --producer --topic flights

        kafkapy acls add --allow-principal User:bob --consumer --topic flights --group readers

        kafkapy acls add --allow-principal User:app --operation All --topic app- --resource-pattern-type prefixed
    """
    resources = Resources(topic, group, cluster, transactional_id, delegation_token, user_principal, pattern_type)
    who = Who(allow_principal or (), allow_host or (), deny_principal or (), deny_host or (), operation or ())
    acls = wanted(resources, who, producer=producer, consumer=consumer, idempotent=idempotent)
    for line in who.warnings():
        print(f"kafkapy: {line}.", file=sys.stderr)
    with AclAdmin(cluster_of(servers, command_config)) as admin, admin.cluster:
        admin.create_acls(acls)
    print(f"Added {counted(len(acls), 'ACL')}.")


@app.command("remove")
def remove(
    topic: Topics = None,
    group: Groups = None,
    cluster: OfCluster = False,
    transactional_id: Ids = None,
    delegation_token: Tokens = None,
    user_principal: Users = None,
    pattern_type: OfPattern = "literal",
    allow_principal: Allowed = None,
    allow_host: AllowedHosts = None,
    deny_principal: Denied = None,
    deny_host: DeniedHosts = None,
    operation: Operations = None,
    producer: Producer = False,
    consumer: Consumer = False,
    idempotent: Idempotent = False,
    principal: Annotated[
        Names, typer.Option("--principal", metavar="USER", help="All ACLs of this user; may be repeated.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", hidden=True)] = False,  # of kafka-acls, which asks otherwise
    servers: Servers = DEFAULT_SERVER,
    command_config: CommandConfig = None,
) -> None:
    """Remove ACLs, and show what was removed: certain ACLs, all of a resource, or all of a user.

    Examples:

        kafkapy acls remove --allow-principal User:alice --producer --topic flights

        kafkapy acls remove --topic flights

        kafkapy acls remove --principal User:bob
    """
    resources = Resources(topic, group, cluster, transactional_id, delegation_token, user_principal, pattern_type)
    who = Who(allow_principal or (), allow_host or (), deny_principal or (), deny_host or (), operation or ())
    if who.allow or who.deny:
        if principal:
            raise CallError("--principal removes all ACLs of a user: leave out --allow-principal and --deny-principal")
        kind = resources.kind()
        resources.pattern_type = "literal" if kind in ("ANY", "MATCH") else kind
        acls = wanted(resources, who, producer=producer, consumer=consumer, idempotent=idempotent)
        filters = [
            Filter(*pattern[:2], kind if pattern.resource_type != "CLUSTER" else "LITERAL", *entry)
            for pattern, entry in acls
        ]
    elif operation or producer or consumer or idempotent:
        raise CallError("say whose ACLs: --allow-principal or --deny-principal")
    elif not resources.named() and not principal:
        raise CallError("name a resource, such as --topic, or a user with --principal")
    else:
        users: list[str | None] = [principal_of(one) for one in principal or ()]
        filters = [which._replace(principal=user) for which in resources.filters() for user in users or [None]]
    with AclAdmin(cluster_of(servers, command_config)) as admin, admin.cluster:
        removed = admin.delete_acls(filters)
    if removed:
        _print(removed, as_json=False)
    print(f"Removed {counted(len(removed), 'ACL')}.")


@app.command("test")
def may(
    user: Annotated[str, typer.Argument(metavar="USER", help="The user: alice, or a principal such as User:alice.")],
    operation: Annotated[str, typer.Argument(metavar="OPERATION", help="Such as Read, Write or Describe.")],
    resource: Annotated[
        str, typer.Argument(metavar="RESOURCE", help="Such as topic:flights, group:readers or cluster.")
    ],
    host: Annotated[
        str, typer.Option("--host", metavar="ADDRESS", help="The address of the user's client. Default: any.")
    ] = WILDCARD,
    as_json: Json = False,
    servers: Servers = DEFAULT_SERVER,
    command_config: CommandConfig = None,
) -> None:
    """Say whether a user may do something, and by which ACL. The exit code is 0 if so, and 1 if not.

    Examples:

        kafkapy acls test alice read topic:flights

        kafkapy acls test User:CN=app,O=x clusteraction cluster --host 10.0.0.7
    """
    principal = user if ":" in user else f"User:{user}"
    wanted_operation = operation_of(operation)
    resource_type, name = resource_of(resource)
    with AclAdmin(cluster_of(servers, command_config)) as admin, admin.cluster:
        acls = admin.list_acls(matching(resource_type, name))
        super_users, everyone = _settings(admin)
    client = Client(principal, host_text(host), principal in super_users)
    decision = decide(index_of(acls), client, wanted_operation, resource_type, name, everyone_without_acls=everyone)
    if decision.acl is not None:
        why = f"by the ACL: {_sentence(decision.acl)}"
    elif client.is_super_user:
        why = "because the user is a super user"
    elif acls:
        why = "because no ACL allows it"
    else:
        why = "because there is no ACL for it, and allow.everyone.if.no.acl.found is " + str(everyone).lower()
    if as_json:
        acl = None if decision.acl is None else _picture(decision.acl)
        print_json({"allowed": decision.is_allowed, "acl": acl, "reason": why})
    else:
        may = "may" if decision.is_allowed else "may not"
        print(f"{principal} {may} {display_name(wanted_operation)} {display_name(resource_type)} {name}, {why}.")
        hosts = {acl.entry.host for acl in acls} - {WILDCARD}
        if host == WILDCARD and hosts:
            print(f"There are ACLs for single hosts, which --host takes into account: {', '.join(sorted(hosts))}.")
    if not decision.is_allowed:
        raise typer.Exit(FAILED)


def _settings(admin: AclAdmin) -> tuple[frozenset[str], bool]:
    """Return the super users and allow.everyone.if.no.acl.found of a broker.

    Return no super users and False, with a message on standard error, if the broker refuses to describe its settings.
    """
    from kafkapy.client.administration.admin import BROKER, Admin

    admin.cluster.refresh(())
    broker = min(admin.cluster.brokers)
    try:
        entries = Admin(admin.cluster).describe_configs(
            BROKER, str(broker), ["super.users", "allow.everyone.if.no.acl.found"]
        )
    except KafkaError as error:
        print(f"kafkapy: super users are not known: {error.message.rstrip('.')}.", file=sys.stderr)
        return frozenset(), False
    values = {entry.name: entry.value or "" for entry in entries}
    users = frozenset(one.strip() for one in values.get("super.users", "").split(";") if one.strip())
    return users, values.get("allow.everyone.if.no.acl.found", "") == "true"


def _print(acls: Iterable[Binding], *, as_json: bool) -> None:
    if as_json:
        print_json([_picture(acl) for acl in acls])
    elif acls := list(acls):
        print_table(
            ["resource", "name", "pattern", "permission", "principal", "operation", "host"],
            [
                (
                    display_name(pattern.resource_type),
                    pattern.name,
                    pattern.pattern_type.lower(),
                    display_name(entry.permission),
                    entry.principal,
                    display_name(entry.operation),
                    entry.host,
                )
                for pattern, entry in acls
            ],
        )
    else:
        print("There are no ACLs.")


def _picture(acl: Binding) -> dict[str, str]:
    pattern, entry = acl
    return {
        "resource_type": display_name(pattern.resource_type),
        "name": pattern.name,
        "pattern_type": pattern.pattern_type.lower(),
        "permission": display_name(entry.permission),
        "principal": entry.principal,
        "operation": display_name(entry.operation),
        "host": entry.host,
    }


def _sentence(acl: Binding) -> str:
    pattern, entry = acl
    where = "any host" if entry.host == WILDCARD else entry.host
    what = f"{display_name(entry.permission)} {display_name(entry.operation)} on {shown(pattern)}"
    return f"{what} for {entry.principal} from {where}"
