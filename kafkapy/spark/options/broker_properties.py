"""Kafka client properties common to source and sink: known names, broker addresses, security."""

import logging
from collections.abc import Collection, Iterable, Mapping

from kafkapy.client.cluster import parse_addresses
from kafkapy.spark.options.given import BadOption, as_word, guess

PROTOCOLS = ("plaintext", "ssl", "sasl_plaintext", "sasl_ssl")

log = logging.getLogger("kafkapy.spark")
_warned: set[str] = set()


def bootstrap_servers(given: Mapping[str, str]) -> str:
    """Return bootstrap.servers from the options `kafka.*`, given without that prefix. Raises BadOption."""
    servers = given.get("bootstrap.servers", "").strip()
    if not servers:
        raise BadOption("the option kafka.bootstrap.servers is needed: a broker's address, as in 127.0.0.1:9092")
    try:
        parse_addresses(servers)
    except ValueError as error:
        raise BadOption(f"kafka.bootstrap.servers is {servers!r}: {error}") from None
    return servers


def check_names(
    given: Iterable[str],
    *,
    honoured: Collection[str],
    refused: Mapping[str, str],
    without_effect: Collection[str],
    client: str,
    here: str,
) -> None:
    """Raise BadOption for names that are `refused` (name to reason) or unknown. Warn of those `without_effect`.

    Args:
        given: Names of options `kafka.*`, without that prefix. check_security checks those of TLS and SASL.
        client: The Java client, "consumer" or "producer". here: The user of the options, "source" or "sink".
    """
    for name in given:
        if name in refused:
            raise BadOption(f"kafka.{name} cannot be set: {refused[name]}")
        if name in honoured or name.startswith(("ssl.", "sasl.")):
            continue
        if name not in without_effect:
            near = guess(name, [*honoured, *without_effect])
            raise BadOption(
                f"kafka.{name} is not a property of Kafka's {client}{f'; did you mean kafka.{near}?' if near else ''}"
            )
        warn_once(f"kafka.{name} has no effect on the {here} kafkapy, which does not use Kafka's Java {client}")


def check_security(given: Mapping[str, str]) -> None:
    """Raise BadOption for a security protocol other than PLAINTEXT. Warn of options for the others."""
    protocol = as_word("kafka.security.protocol", given.get("security.protocol", PROTOCOLS[0]).strip(), PROTOCOLS)
    if protocol != PROTOCOLS[0]:
        raise BadOption(
            f"kafka.security.protocol is {given['security.protocol']!r}: kafkapy's client supports PLAINTEXT only; "
            "name a PLAINTEXT listener of the broker"
        )
    for name in given:
        if name.startswith(("ssl.", "sasl.")):
            warn_once(f"kafka.{name} has no effect while kafka.security.protocol is PLAINTEXT")


def warn_once(text: str) -> None:
    """Log a warning, once in this process."""
    if text not in _warned:
        _warned.add(text)
        log.warning("%s.", text)
