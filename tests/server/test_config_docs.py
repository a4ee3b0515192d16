"""docs/configuration.md is generated from the tables of settings, and has every setting that is not internal."""

from pathlib import Path

from kafkapy.log.config import TOPIC_KEYS
from kafkapy.server.config.docs import page
from kafkapy.server.config.keys import BROKER_KEYS

DOCS = Path(__file__).parents[2] / "docs" / "configuration.md"


def test_the_committed_page_matches_the_tables() -> None:
    assert DOCS.read_text() == page(), "run: python -m kafkapy.server.config.docs > docs/configuration.md"


def test_the_page_has_every_setting_that_is_not_internal() -> None:
    text = page()
    for name, key in [*BROKER_KEYS.items(), *TOPIC_KEYS.items()]:
        assert (f"| `{name}` |" in text) is not key.internal
