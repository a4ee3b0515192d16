"""UpdateFeatures, to a broker that supports no features."""

from typing import Any

import pytest

from kafkapy.errors import Errors
from kafkapy.protocol import apis
from tests.harness.wire import Wire

UPGRADE, SAFE_DOWNGRADE = 1, 2


@pytest.mark.parametrize(
    ("feature", "level", "upgrade_type", "reason"),
    [
        ("f", 1, UPGRADE, "not supported"),
        ("f", 1, SAFE_DOWNGRADE, "not supported"),
        ("f", 0, UPGRADE, "below 1"),
        ("f", 0, SAFE_DOWNGRADE, "not finalized"),
        ("f", 1, 9, "upgrade type 9 is unknown"),
        ("", 1, UPGRADE, "name of the feature is empty"),
    ],
)
def test_every_update_of_a_feature_is_refused(
    wire: Wire, feature: str, level: int, upgrade_type: int, reason: str
) -> None:
    (result,) = update(wire, 1, feature=feature, max_version_level=level, upgrade_type=upgrade_type).results
    assert (result.feature, result.error_code) == (feature, Errors.INVALID_REQUEST)
    assert reason in result.error_message
    if upgrade_type in (UPGRADE, SAFE_DOWNGRADE):
        is_downgrade = upgrade_type == SAFE_DOWNGRADE
        (older,) = update(wire, 0, feature=feature, max_version_level=level, allow_downgrade=is_downgrade).results
        assert older == result


def test_clients_get_the_epoch_of_the_features(wire: Wire) -> None:
    found = wire.call(apis.API_VERSIONS, 4, client_software_name="t", client_software_version="1")
    assert (found.finalized_features_epoch, found.finalized_features, found.supported_features) == (0, [], [])


def update(wire: Wire, version: int, **fields: Any) -> Any:
    make = apis.UPDATE_FEATURES.Request.FeatureUpdates
    answer = wire.call(apis.UPDATE_FEATURES, version, feature_updates=[make(**fields)], timeout_ms=1000)
    assert answer.error_code == Errors.NONE
    return answer
