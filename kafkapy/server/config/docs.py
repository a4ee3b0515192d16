"""Print docs/configuration.md, made from the tables of settings:
`python -m kafkapy.server.config.docs > docs/configuration.md`.
"""

from __future__ import annotations

from collections.abc import Iterable

from kafkapy.log.config import TOPIC_KEYS, TOPIC_SYNONYMS
from kafkapy.runtime.config_def import ConfigKey, ConfigType
from kafkapy.server.config.broker_config import EFFECTIVE_PER_LISTENER
from kafkapy.server.config.keys import BROKER_KEYS, DEFAULTS_HERE, FAMILIES, READ_ONLY_HERE

_INTRODUCTION = """# Configuration

`python -m kafkapy.server.config.docs` makes this page from the tables that the broker itself uses.

`kafkapy start server.properties -o key=value` reads Apache Kafka's own `server.properties` (Java's .properties
format, in UTF-8); each `-o` overrides the file. Names, types, defaults and rules are those of Apache Kafka 3.9, and all
its broker settings are accepted. Four things differ:

- Settings that only kafkapy has begin with `kafkapy.`.
- Some defaults differ:
{defaults}
- `offsets.topic.replication.factor` and `transaction.state.log.replication.factor` default to 3 as in Kafka, but only a
  value that is set is required: otherwise the topic is created with as many replicas as brokers are alive, at most 3,
  and a warning if there are fewer. Without ZooKeeper it has one.
- {read_only} cannot be changed while the
  broker runs.

The broker does not start with an invalid value; the error names the setting, the value and the rule. One warning lists
the unknown settings, another the settings without an effect in this broker, which have "no" in the column "effect".

Settings that protect an Apache Kafka broker, but are not supported here, also prevent the start, with an error that
explains it: an authorizer in Java other than Kafka's (`authorizer.class.name`), another ZooKeeper for ACLs
(`authorizer.zookeeper.url`), a Java class that names principals (`principal.builder.class`) or decides quotas
(`client.quota.callback.class`), a Java policy for topics or settings (`create.topic.policy.class.name`,
`alter.config.policy.class.name`), delegation tokens (`delegation.token.secret.key`, `delegation.token.master.key`),
Kerberos (`sasl.kerberos.*`, GSSAPI), passwords that are kept elsewhere (`config.providers`), unknown settings of TLS
and SASL, names of listeners or mechanisms with capital letters in such settings, and restrictions of the TLS to
ZooKeeper (`zookeeper.ssl.crl.enable`, `zookeeper.ssl.ocsp.enable`, `zookeeper.ssl.cipher.suites`,
`zookeeper.ssl.enabled.protocols`, `zookeeper.ssl.protocol`). An empty value and Kafka's default are accepted. These
settings are refused while the broker runs, too. If Apache Kafka has stored one as a dynamic setting, it also prevents
the start, unless it is for a listener that this broker does not have, or the file sets it to an accepted value.

Without `zookeeper.connect` this broker stores its metadata itself.

The column "changes" says how a setting can be changed while the broker runs, with AlterConfigs or
IncrementalAlterConfigs: not at all (read-only), for one broker (per-broker), or for one broker or all of them
(cluster-wide). For the settings `ssl.*` the column says what Kafka can change. This broker can change only those of key
stores and trust stores, and only for one listener ([how](security.md#new-certificates-without-a-restart)).

The broker takes the first value that it finds in: the topic's own settings, the broker's dynamic settings, the
cluster's dynamic settings, the file, the defaults.

`listener.name.NAME.SETTING`, with NAME in lower case, sets a value for one listener. It has an effect for the settings
`ssl.*` and `sasl.*`, and for {per_listener}.
"""

_WHY = {  # the reasons for DEFAULTS_HERE
    "num.network.threads": "Python threads share the GIL, so that one is fastest.",
    "socket.send.buffer.bytes": """twice Kafka's: one consumer gets a third more throughput with
    `sendfile`.""",
    "socket.receive.buffer.bytes": """the system sizes the buffer, which halves the CPU time for
    requests of 1 MiB (0.12 to 0.18 s per GiB, 0.36 with Kafka's 102400).""",
    "replica.socket.receive.buffer.bytes": """likewise; a follower that catches up needs a fifth to a
    third less CPU time than with Kafka's 65536.""",
    "socket.listen.backlog.size": """if 1,000 clients connect at the same time, more than half of
    them wait a second with Kafka's 50, none with 4096 (the system limits it to `net.core.somaxconn`).""",
}

_TOPIC_INTRODUCTION = """## Topics

If a topic does not have a setting itself, the value comes from the broker setting in the same row; if that is not set
and the row names more than one, from the next.
"""


def page() -> str:
    """Return the text of docs/configuration.md."""
    parts = [
        _INTRODUCTION.format(
            defaults="\n".join(f"  - `{name}={value}`: {_WHY[name]}" for name, value in DEFAULTS_HERE.items()),
            read_only=_words(f"`{name}`" for name in sorted(READ_ONLY_HERE)),
            per_listener=_words(f"`{name}`" for name in sorted(EFFECTIVE_PER_LISTENER)),
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
    # Markdown breaks lines only at spaces; without them a long list of values would make the column very wide.
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
