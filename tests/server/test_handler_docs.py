"""The versions in the docstrings of the handler modules match the API table."""

import pkgutil
import re
import sys

import pytest

from kafkapy.server import handlers
from kafkapy.server.api_table import TABLE

MODULES = sorted(module.name for module in pkgutil.iter_modules(handlers.__path__))
VERSIONS = re.compile(r"(\w+)\s\(versions?\s(\d+)(?:\sto\s(\d+))?[);]")


@pytest.mark.parametrize("name", MODULES)
def test_the_docstring_of_a_handler_module_has_its_versions_and_differences_from_kafka(name: str) -> None:
    module = f"{handlers.__name__}.{name}"
    doc = sys.modules[module].__doc__ or ""
    documented = {api: (int(first), int(last or first)) for api, first, last in VERSIONS.findall(doc)}
    served = {key: TABLE.find(key) for key in TABLE.versions()}
    assert documented == {
        one.api.name: TABLE.versions()[key]
        for key, one in served.items()
        if one is not None and one.handler.__module__ == module
    }
    assert documented
    assert doc.count("Differences from Kafka:") == 1


def test_versions_are_read_in_each_form_of_the_docstrings() -> None:
    assert VERSIONS.findall("A (versions 0 to 12): x. B (version 3) and\nC (versions 1 to 2; KIP-1).") == [
        ("A", "0", "12"),
        ("B", "3", ""),
        ("C", "1", "2"),
    ]
