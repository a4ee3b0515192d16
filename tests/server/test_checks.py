"""Every handler is registered with the rights that its requests need, and docs/security.md lists them."""

from pathlib import Path

import pytest

from kafkapy.errors import Errors
from kafkapy.protocol.apis import DELETE_GROUPS
from kafkapy.security.acls.bindings import OPERATIONS
from kafkapy.server.api_table import TABLE, ApiTable
from kafkapy.server.checks import NoCheck, actions_of, on_cluster
from kafkapy.tools.authorization_docs import updated

PAGE = Path(__file__).parents[2] / "docs" / "security.md"


def test_the_committed_table_matches_the_registrations() -> None:
    assert PAGE.read_text() == updated(PAGE.read_text()), (
        "run: python -m kafkapy.tools.authorization_docs docs/security.md"
    )


def test_a_handler_without_a_declaration_does_not_register() -> None:
    table = ApiTable()
    with pytest.raises(TypeError, match="checks"):
        table.serves(DELETE_GROUPS)  # type: ignore[call-arg]
    with pytest.raises(ValueError, match="DeleteGroups: say what"):
        table.serves(DELETE_GROUPS, checks=[])
    assert table.versions() == {}


def test_the_dispatcher_asks_nothing_for_an_api_without_checks() -> None:
    assert actions_of(NoCheck("anybody")) is None
    assert actions_of(on_cluster("ALTER")) is not None


def test_every_operation_and_denial_of_a_declaration_exists() -> None:
    operations = set(OPERATIONS)
    for key in TABLE.versions():
        served = TABLE.find(key)
        assert served is not None
        for check in served.checks if not isinstance(served.checks, NoCheck) else ():
            assert {right.operation for right in (check.right, check.unless) if right is not None} <= operations
            denial = check.denial.split()[0].rstrip(",;:")
            assert hasattr(Errors, denial) or denial in ("none", "the"), check
