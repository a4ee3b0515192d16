"""Reads topic settings from a file, in kafkapy's own formats or as printed by Apache Kafka's tools.

There are four formats, recognized by the content of the file:

- JSON: `{"TOPIC": {"retention.ms": "604800000"}}`
- properties: lines `TOPIC/retention.ms=604800000` (a topic name has no slash)
- `kafka-configs.sh --describe --entity-type topics`, of Kafka 0.9 to 3.9
- `kafka-topics.sh --describe`, of Kafka 0.8 to 3.9

In all of them, a topic that is named without settings has no overrides, so the broker's defaults apply. The settings
of a topic that is not named are unknown.
"""

from __future__ import annotations

import json
import re

from kafkapy.server.config.properties import PropertiesError, parse_properties

Settings = dict[str, dict[str, str]]

# The first line that Kafka 2.5 and later print. Each setting follows on its own line, with the source of its value.
_CONFIGS_HEAD = re.compile(r"\w+ configs for (?P<kind>\S+) (?P<name>\S*)(?: .*)? are:")
_CONFIGS_ENTRY = re.compile(
    r"  (?P<key>[a-z0-9.]+)=(?P<value>.*?) sensitive=(?:true|false) synonyms=\{(?P<synonyms>.*)\}"
)
_FROM_THE_TOPIC = "DYNAMIC_TOPIC_CONFIG:"
# The line that Kafka 0.9 to 2.4 print; before 0.10.1 the name was printed as topic:NAME.
_CONFIGS_LINE = re.compile(r"Configs for (?:topics? )?'?(?:topic:)?(?P<name>[^' ]+)'? are (?P<configs>.*)")
_TOPICS_LINE = re.compile(r"Topic: ?(?P<name>\S+)\t.*PartitionCount:.*\tConfigs: ?(?P<configs>[^\t]*)")
_TOPICS_PARTITION = re.compile(r"\t?\s*Topic: ?\S+\t\s*Partition: ?\d+\t")
# The comma before the next setting. Values may contain commas, too.
_NEXT = re.compile(r",(?=[a-z0-9.]+=)")


class SettingsFileError(ValueError):
    """Raised for a settings file that has none of the known formats; the message quotes the part that is not
    understood."""


def parse_settings(text: str) -> Settings:
    """Return the topic settings in the text of a settings file, by topic and name. Raise SettingsFileError if the text
    has none of the known formats."""
    if text.lstrip().startswith("{"):
        return _from_json(text)
    lines = [line for line in text.splitlines() if line.strip()]
    if any(_is_of_a_tool(line) for line in lines):
        return _from_tool(lines)
    return _from_properties(text)


def _from_json(text: str) -> Settings:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise SettingsFileError(f"it is not JSON: {error}") from None
    for topic, settings in value.items():
        if not isinstance(settings, dict):
            raise SettingsFileError(f"{topic} has {json.dumps(settings)} where an object of settings belongs")
    return {topic: {key: _text(one) for key, one in settings.items()} for topic, settings in value.items()}


def _text(value: object) -> str:
    """Return a value from JSON as the text of a setting: the items of a list are joined with commas."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return ",".join(map(_text, value))
    return json.dumps(value)


def _from_properties(text: str) -> Settings:
    try:
        lines = parse_properties(text)
    except PropertiesError as error:
        raise SettingsFileError(str(error)) from None
    found: Settings = {}
    for name, value in lines.items():
        topic, slash, key = name.partition("/")
        if not slash or not topic:
            raise SettingsFileError(f"{name!r} is not TOPIC/KEY, as in flights/retention.ms=604800000")
        settings = found.setdefault(topic, {})
        if key:
            settings[key] = value
    return found


def _is_of_a_tool(line: str) -> bool:
    return any(form.match(line) for form in (_CONFIGS_HEAD, _CONFIGS_LINE, _TOPICS_LINE))


def _from_tool(lines: list[str]) -> Settings:
    found: Settings = {}
    current: dict[str, str] | None = None
    for line in lines:
        if match := _CONFIGS_HEAD.match(line):
            # Brokers, clients and users are printed, too, if the tool was run for all entity types.
            current = found.setdefault(match["name"], {}) if match["kind"] == "topic" else {}
        elif match := _CONFIGS_LINE.match(line) or _TOPICS_LINE.match(line):
            found.setdefault(match["name"], {}).update(_listed(match["configs"]))
        elif match := _CONFIGS_ENTRY.match(line):
            # With --all the tool also prints the broker's settings, which are not the topic's overrides.
            if current is not None and _FROM_THE_TOPIC in match["synonyms"]:
                current[match["key"]] = match["value"]
        elif not _TOPICS_PARTITION.match(line):
            raise SettingsFileError(f"this line is of no form that is known: {line!r}")
    return found


def _listed(text: str) -> dict[str, str]:
    """Return the settings in a text `key=value,key=value`, as Kafka's tools print it, by name."""
    pairs = (item.partition("=") for item in _NEXT.split(text.strip()) if item)
    return {key: value for key, _, value in pairs}
