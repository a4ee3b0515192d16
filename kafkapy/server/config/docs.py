"""Writes the configuration page from the tables of settings:
`python -m kafkapy.server.config.docs > docs/configuration.md`.
"""

from __future__ import annotations

from collections.abc import Iterable

from kafkapy.log.config import TOPIC_KEYS, TOPIC_SYNONYMS
from kafkapy.runtime.config_def import ConfigKey, ConfigType
from kafkapy.server.config.keys import BROKER_KEYS, DEFAULTS_HERE, FAMILIES, READ_ONLY_HERE

_INTRODUCTION = """# Configuration

This page is written by `python -m kafkapy.server.config.docs` from the tables that the broker itself uses.

`kafkapy start server.properties -o key=value` reads Apache Kafka's own `server.properties` (the Java .properties
form, UTF-8) and puts each `-o` over it. Names, types, defaults and rules are those of Apache Kafka 3.9, and every
one of its broker settings is accepted. Three things are different:

- Settings of our own begin with `kafkapy.`.
- Some defaults are others: {defaults}. One network thread serves best where threads share an interpreter; a receive
  buffer that the system sizes takes half the CPU for requests of 1 MiB (0.12 to 0.18 s a GiB against 0.36 with Kafka's
  102400), and a send buffer of twice Kafka's gives one consumer a third more by sendfile; of 1,000 clients
  that connect at once more than half wait a second with Kafka's backlog of 50, none with 4096 (the system cuts it
  to `net.core.somaxconn`); and a cluster of one broker holds one replica.
- {read_only} cannot be changed while the
  broker runs.

A value that breaks a rule stops the start with a line that names the key, the value and the rule. Settings that
nobody knows, and settings that have no effect in this broker, are named in one warning each; the tables
mark the latter with "no". A setting that protects a Kafka broker and is not supported here refuses the start with a
sentence that says what it means: an authorizer (`authorizer.class.name`, `super.users`,
`allow.everyone.if.no.acl.found`), TLS and SASL for clients (`ssl.*`, `sasl.*`, also for one listener,
`principal.builder.class`, `connections.max.reauth.ms`, the secret of delegation tokens), a Java policy for topics or
settings (`create.topic.policy.class.name`, `alter.config.policy.class.name`), a listener or
`security.inter.broker.protocol` other than PLAINTEXT. An empty value and Kafka's default pass. The same settings are
refused while the broker runs. If one is stored as a dynamic setting, because Apache Kafka had it there, it refuses the
start too, unless it is for a listener that this broker does not have, or the file sets it to such a value. Without
`zookeeper.connect` this broker keeps its metadata itself.

"Changes" says who may change a setting while the broker runs, through AlterConfigs and
IncrementalAlterConfigs: nobody (read-only), one broker at a time (per-broker), or one broker or all at
once (cluster-wide). A value is looked for among the topic's own settings, the broker's dynamic ones, the
cluster's dynamic ones, the file, and then the default. Any setting may be given for one listener as
`listener.name.NAME.SETTING`.
"""

_TOPIC_INTRODUCTION = """## Topics

A setting that the topic does not have itself comes from the broker setting in the same row, and where that is not
set, from the next one.
"""


def page() -> str:
    """Return the whole page, in Markdown."""
    parts = [
        _INTRODUCTION.format(
            defaults=_words(f"`{name}={value}`" for name, value in sorted(DEFAULTS_HERE.items())),
            read_only=_words(f"`{name}`" for name in sorted(READ_ONLY_HERE)),
        )
    ]
    for family in FAMILIES:
        title = (family.__doc__ or "").partition(": ")[2].rstrip(".").replace('"', "`")
        title = title if title.startswith("kafkapy") else title[:1].upper() + title[1:]
        parts.append(f"## {title}\n\n" + _broker_table(BROKER_KEYS[row[0]] for row in family.ROWS))
    parts.append(_TOPIC_INTRODUCTION + "\n" + _topic_table(TOPIC_KEYS.values()))
    return "\n".join(parts)


def _broker_table(keys: Iterable[ConfigKey]) -> str:
    lines = ["| name | type | default | valid | changes | effect | meaning |", "|---|---|---|---|---|---|---|"]
    lines += [
        f"| `{key.name}` | {key.type.lower()} | {_default(key)} | {_valid(key)} | {key.mode} | "
        f"{'yes' if key.effect else 'no'} | {key.doc} |"
        for key in keys
        if not key.internal
    ]
    return "\n".join(lines) + "\n"


def _topic_table(keys: Iterable[ConfigKey]) -> str:
    lines = ["| name | type | default | valid | broker setting | effect | meaning |", "|---|---|---|---|---|---|---|"]
    for key in keys:
        behind = ", ".join(f"`{name}`" for name, _ in TOPIC_SYNONYMS.get(key.name, ()))
        lines.append(
            f"| `{key.name}` | {key.type.lower()} | {_default(key)} | {_valid(key)} | {behind} | "
            f"{'yes' if key.effect else 'no'} | {key.doc} |"
        )
    return "\n".join(lines) + "\n"


def _default(key: ConfigKey) -> str:
    text = key.format(key.default)
    if text is None:
        return ""
    # Markdown can break a long list of values only at blanks; without them the column would be very wide.
    return f"`{text}`".replace(",", ", ") if text else '""'


def _valid(key: ConfigKey) -> str:
    if key.validator is None:
        return "true or false" if key.type == ConfigType.BOOLEAN else ""
    text = str(key.validator)
    return "a Kafka version" if text.startswith("[0.8.0") else text.replace("|", "\\|")


def _words(items: Iterable[str]) -> str:
    *most, last = items
    return f"{', '.join(most)} and {last}" if most else last


if __name__ == "__main__":
    print(page(), end="")
