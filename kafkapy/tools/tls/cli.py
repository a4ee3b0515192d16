"""The command `kafkapy tls`: checks the certificates in files and those of a listener."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from kafkapy.server.config.properties import load_properties
from kafkapy.tools.common.errors import CallError
from kafkapy.tools.common.options import Json
from kafkapy.tools.common.output import print_json, print_table
from kafkapy.tools.tls.client_settings import client_settings
from kafkapy.tools.tls.files import check_file, check_settings
from kafkapy.tools.tls.listener import check_listener

app = typer.Typer(no_args_is_help=True, help="Check certificates, key stores and TLS listeners.")


@app.callback()
def tls() -> None:
    """Check certificates, key stores and TLS listeners."""


@app.command("check")
def check(
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="[FILE|HOST:PORT]", help="A key store, a trust store, a properties file, or a listener."
        ),
    ] = None,
    command_config: Annotated[
        Path | None,
        typer.Option(
            "--command-config",
            envvar="KAFKAPY_COMMAND_CONFIG",
            metavar="FILE",
            help="A properties file with ssl.* settings: passwords of the file, or the stores of a client.",
        ),
    ] = None,
    host: Annotated[
        str | None,
        typer.Option("--host", metavar="NAME", help="The host name to look for in a listener's certificate."),
    ] = None,
    days: Annotated[int, typer.Option("--days", help="Warn if a certificate expires within this many days.")] = 30,
    as_json: Json = False,
) -> None:
    """Show the certificates of a file or of a listener, and what clients would reject about them.

    For each certificate: subject, issuer, host names, key, and the days until it expires. For a listener, also the TLS
    versions that it accepts. The exit code is 1 if clients would refuse the file or listener.

    Without a target, the stores that the file of --command-config names are checked. Passwords are read from that file
    only.

    Examples:

        kafkapy tls check /etc/kafka/keystore.pem

        kafkapy tls check server.properties

        kafkapy tls check broker1:9093 --command-config client.properties
    """
    try:
        settings = {} if command_config is None else load_properties(command_config)
    except (OSError, ValueError) as error:
        raise CallError(f"--command-config {command_config}: {getattr(error, 'strerror', None) or error}") from error
    if target is None:
        if command_config is None:
            raise CallError("name a file, HOST:PORT, or a properties file with --command-config")
        documents = check_settings(str(command_config), settings, days)
    elif (address := _address(target)) is not None:
        documents = [check_listener(*address, _of_client(settings), host, days)]
    else:
        documents = check_file(Path(target), settings, days)
    if as_json:
        print_json(documents)
    else:
        for number, document in enumerate(documents):
            if number:
                print()
            _show(document)
    if any(finding["level"] == "error" for document in documents for finding in document["findings"]):
        raise typer.Exit(1)


def _address(target: str) -> tuple[str, int] | None:
    """Return host and port if `target` is an address, None if it is a file. A file that exists comes first."""
    name, colon, port = target.rpartition(":")
    if not colon or not name or not port.isdecimal() or Path(target).exists():
        return None
    if not 0 < int(port) < 65536:
        raise CallError(f"{target!r} has no valid port")
    return name.strip("[]"), int(port)


def _of_client(properties: Mapping[str, str]) -> dict[str, str]:
    try:
        return client_settings(properties)
    except (OSError, ValueError) as error:
        raise CallError(f"--command-config: {error}") from error


def _show(document: dict[str, Any]) -> None:
    print_table(
        ["certificate", "signed by", "host names", "key", "expires", "days left>"],
        [
            (
                one["subject"],
                "itself" if one["issuer"] == one["subject"] else one["issuer"],
                " ".join(one["names"]),
                one["key"],
                one["notAfter"][:10],
                int(one["daysLeft"]),
            )
            for one in document["certificates"]
        ],
        title=f"{document['target']} ({document['kind']})",
    )
    for one in document.get("protocols", ()):
        print(f"{one['version']}: {one['cipher'] if one['accepted'] else 'not accepted, ' + one['reason']}")
    if "trustNeeded" in document:
        print(f"The other side must trust: {document['trustNeeded']}")
    for finding in document["findings"]:
        print(f"{finding['level']}: {finding['message']}")
    if not document["findings"]:
        print("No problems found.")
