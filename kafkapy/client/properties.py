"""The names of all properties of Kafka's clients, and a class that checks and reads the properties given for a client.

Each client honours a property, refuses it with a reason, or warns that it has no effect. Source: ConsumerConfig and
ProducerConfig of Kafka 3.9; ProducerConfig of Kafka 0.8.2.
"""

from __future__ import annotations

import difflib
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, TypeVar

from kafkapy.client.addresses import parse_addresses

log = logging.getLogger(__name__)

T = TypeVar("T")

LONGEST = (1 << 31) - 1

# The names of properties for TLS and SASL, Java's first, then librdkafka's.
SECURITY_NAMES = (
    ("sasl.mechanism", "sasl.mechanisms"),
    ("ssl.keystore.certificate.chain", "ssl.certificate.pem"),
    ("ssl.keystore.key", "ssl.key.pem"),
    ("ssl.truststore.certificates", "ssl.ca.pem"),
    ("ssl.truststore.location", "ssl.ca.location"),
)

# The names of all properties but those for TLS and SASL. A property that a client neither honours nor refuses has no
# effect on the client.
_COMMON = frozenset(
    """
    auto.include.jmx.reporter bootstrap.servers client.dns.lookup client.id connections.max.idle.ms
    enable.metrics.push interceptor.classes metadata.max.age.ms metadata.recovery.strategy metric.reporters
    metrics.num.samples metrics.recording.level metrics.sample.window.ms receive.buffer.bytes
    reconnect.backoff.max.ms reconnect.backoff.ms request.timeout.ms retry.backoff.max.ms retry.backoff.ms
    security.protocol send.buffer.bytes socket.connection.setup.timeout.max.ms
    socket.connection.setup.timeout.ms
    """.split()  # noqa: SIM905
)
CONSUMER = _COMMON | frozenset(
    """
    allow.auto.create.topics auto.commit.interval.ms auto.offset.reset check.crcs client.rack default.api.timeout.ms
    enable.auto.commit exclude.internal.topics fetch.max.bytes fetch.max.wait.ms fetch.min.bytes group.id
    group.instance.id group.protocol group.remote.assignor heartbeat.interval.ms internal.leave.group.on.close
    isolation.level key.deserializer max.partition.fetch.bytes max.poll.interval.ms max.poll.records
    partition.assignment.strategy session.timeout.ms value.deserializer
    """.split()  # noqa: SIM905
)
PRODUCER = _COMMON | frozenset(
    """
    acks batch.size buffer.memory compression.gzip.level compression.lz4.level compression.type compression.zstd.level
    delivery.timeout.ms enable.idempotence key.serializer linger.ms max.block.ms max.in.flight.requests.per.connection
    max.request.size metadata.max.idle.ms partitioner.adaptive.partitioning.enable
    partitioner.availability.timeout.ms partitioner.class partitioner.ignore.keys retries transaction.timeout.ms
    transactional.id value.serializer
    """.split()  # noqa: SIM905
)


class ClientProperties:
    """The properties given for one client, read by name and checked. Each error message is one sentence.

    Args:
        given: The values by property name. A property whose value is None counts as not given.
        names: The names of each property that has several names, the present name first. The methods take the present
            name; messages show the name that the user gave.
        where: The beginning of each message, such as "consumer.properties: ".
        prefix: The prefix that users write before the names, such as "kafka.".
        error: Creates the exception to raise from a message.
        cannot, no_effect: The words in messages for refused properties and for properties without effect, such as
            "cannot be set for X".
    Raises:
        ValueError: A property's name or value cannot be used. Raised by the constructor and by the methods. If `error`
            is given, they raise the exception that `error` creates instead.
    """

    def __init__(
        self,
        given: Mapping[str, Any],
        *,
        names: Iterable[tuple[str, ...]] = (),
        where: str = "",
        prefix: str = "",
        error: Callable[[str], Exception] = ValueError,
        cannot: str = "cannot be set",
        no_effect: str = "has no effect",
    ) -> None:
        self._where = where
        self._prefix = prefix
        self._error = error
        self._cannot = cannot
        self._no_effect = no_effect
        self._present = {name: group[0] for group in (*names, *SECURITY_NAMES) for name in group}
        self._names: dict[str, str] = {}  # present name -> name as given
        self._values: dict[str, str] = {}
        for name, value in given.items():
            if value is not None:
                present = self._present.get(name, name)
                if present in self._names:
                    new, old = sorted((name, self._names[present]), key=list(self._present).index)
                    raise self.given_twice(new, old, given)
                self._names[present] = name
                self._values[present] = str(value).strip()

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def __iter__(self) -> Iterator[str]:
        """Iterate over the present names of the properties that were given."""
        return iter(self._values)

    def bad(self, text: str) -> Exception:
        """Return the exception to raise for the message `text`. The message begins with the constructor's `where`."""
        return self._error(self._where + text)

    def given_twice(self, new: str, old: str, given: Mapping[str, Any]) -> Exception:
        """Return the exception to raise when one property was given under two of its names, `new` and `old`."""
        if is_security(new):  # the values may be secret
            return self.bad(f"{old} is another name of {new}, which is given too; remove one of them")
        both = f"{new}={given[new]} and {old}={given[old]} are the same property"
        return self.bad(f"{old} is the old name of {new}, which is given too; remove one of them: {both}")

    def warn(self, text: str) -> None:
        """Log a warning with the message `text`. The message begins with the constructor's `where`."""
        log.warning("%s%s", self._where, text)

    def called(self, name: str) -> str:
        """Return a property's name as the user has written it, or would write it, with the prefix."""
        return self._prefix + self._names.get(name, name)

    def check_names(
        self,
        *,
        honoured: Collection[str],
        refused: Mapping[str, str],
        without_effect: Collection[str],
        client: str,
    ) -> None:
        """Raise an error if a given property is refused or unknown. Log a warning for each property without effect.

        Properties for TLS and SASL are not checked here; see `kafkapy.client.security.read_security`.

        Args:
            honoured: The names that the client honours.
            refused: The reason for each name that the client refuses.
            without_effect: The names that exist but have no effect on the client.
            client: The name of the client, for messages.
        """
        for name in self._values:
            called = self.called(name)
            if name in refused:
                raise self.bad(f"{called} {self._cannot}: {refused[name]}")
            if name in honoured or is_security(name):
                continue
            if name not in without_effect:
                known = {*honoured, *without_effect, *self._present}.difference(refused)
                near = difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.7)
                hint = f"; did you mean {self._prefix}{near[0]}?" if near else ""
                raise self.bad(f"{called} is not a property of {client}{hint}")
            self.warn(f"{called} {self._no_effect}")

    def text(self, name: str, default: str = "") -> str:
        """Return a property's value as text, or `default` if the property is not given or empty."""
        return self._values.get(name) or default

    def needed(self, name: str, example: str) -> str:
        """Return a property's value as text.

        Raise an error, which shows `example` as a value, if the property is missing or empty.
        """
        value = self.text(name)
        if not value:
            raise self.bad(f"{self.called(name)} is missing; add it, as in {self.called(name)}={example}")
        return value

    def servers(self, name: str = "bootstrap.servers") -> str:
        """Return a property's value, a list of broker addresses, as the user gave it.

        Raise an error if the property is missing or its value is not a list of broker addresses.
        """
        value = self.needed(name, "127.0.0.1:9092")
        try:
            parse_addresses(value)
        except ValueError as error:
            raise self.bad(f"{self.called(name)} is {value!r}: {error}") from None
        return value

    def number(self, name: str, default: int, *, least: int = 1, most: int = LONGEST) -> int:
        """Return a property's value as an int, or `default` if the property is not given.

        Raise an error if the value is not a whole number from `least` to `most`.
        """
        if name not in self:
            return default
        value = self._values[name]
        digits = value[1:] if value[:1] in ("+", "-") else value
        if not (digits.isascii() and digits.isdigit() and len(digits) < 20) or not least <= int(value) <= most:
            raise self.bad(f"{self.called(name)} is {value!r}; it must be a whole number from {least} to {most}")
        return int(value)

    def seconds(self, name: str, default_ms: int, *, least: int = 1) -> float:
        """Return the value of a property that is in milliseconds, as seconds.

        `default_ms` and `least` are in milliseconds. Raise an error if the value is not a whole number of at least
        `least`.
        """
        return self.number(name, default_ms, least=least) / 1000

    def word(self, name: str, words: Mapping[str, T], default: str) -> T:
        """Look up a property's value (or `default`) in `words`, ignoring case, and return the value that it maps to.

        Raise an error if the property's value is not among `words`.
        """
        value = self._values.get(name, default)
        if value.lower() not in words:
            raise self.bad(f"{self.called(name)} is {value!r}; it can be {', '.join(words)}")
        return words[value.lower()]

    def flag(self, name: str, default: bool) -> bool:
        """Return the value of a property that is true or false as a bool. Raise an error for any other value."""
        return self.word(name, {"true": True, "false": False}, str(default).lower())


def is_security(name: str) -> bool:
    """Return True if the property with this name is for TLS or SASL."""
    return name.startswith(("ssl.", "sasl.", "enable.ssl.", "enable.sasl.")) or name == "security.providers"
