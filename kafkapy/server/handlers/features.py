"""UpdateFeatures (versions 0 to 1): KIP-584, KIP-778.

A broker of Apache Kafka 3.9 in ZooKeeper mode supports no features, and so does this one: every update is refused, with
the reason that Kafka gives. Source: KafkaApis.handleUpdateFeatures, KafkaController.processFeatureUpdates.

Differences from Kafka: none known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkapy.errors import Errors, KafkaError
from kafkapy.protocol.apis import UPDATE_FEATURES
from kafkapy.server.admission import refusal
from kafkapy.server.api_table import serves
from kafkapy.server.call import Call
from kafkapy.server.checks import on_cluster

if TYPE_CHECKING:
    from kafkapy.server.services import Services

_TYPES_SINCE = 1
_UPGRADE, _SAFE_DOWNGRADE, _UNSAFE_DOWNGRADE = 1, 2, 3


@serves(UPDATE_FEATURES, checks=on_cluster("ALTER"))
def handle(broker: Services, call: Call, request: Any) -> Any:
    """Handle UpdateFeatures: return INVALID_REQUEST and the reason for each feature, or NOT_CONTROLLER."""
    make = UPDATE_FEATURES.Response
    try:
        if call.denied:
            raise refusal(Errors.CLUSTER_AUTHORIZATION_FAILED)
        broker.controller.check_active()
    except KafkaError as error:
        return make(error_code=error.code, error_message=error.message)
    results = []
    for update in request.feature_updates:
        upgrade_type = update.upgrade_type
        if call.version < _TYPES_SINCE:
            upgrade_type = _SAFE_DOWNGRADE if update.allow_downgrade else _UPGRADE
        reason = _refusal(update.feature, update.max_version_level, upgrade_type)
        results.append(
            make.Results(feature=update.feature, error_code=Errors.INVALID_REQUEST, error_message=reason),
        )
    return make(error_message=None, results=results)


def _refusal(feature: str, level: int, upgrade_type: int) -> str:
    if not feature:
        return "the name of the feature is empty"
    if upgrade_type not in (_UPGRADE, _SAFE_DOWNGRADE, _UNSAFE_DOWNGRADE):
        return f"the upgrade type {upgrade_type} is unknown"
    if level >= 1:
        return f"the feature {feature} is not supported: brokers with ZooKeeper support no features"
    if upgrade_type != _UPGRADE:
        return f"the feature {feature} is not finalized, so it cannot be deleted"
    return f"the version level {level} of {feature} is below 1; only a downgrade deletes a feature"
