"""DescribeUserScramCredentials (version 0) and AlterUserScramCredentials (version 0): the passwords of SCRAM users
(KIP-554). The broker stores keys from which the password cannot be computed.

Source: kafka.server.ZkAdminManager.

Differences from Kafka:

- Every broker carries out AlterUserScramCredentials. In Kafka only the controller does; other brokers return
  NOT_CONTROLLER. The user's node is written only if it has not changed meanwhile.
- An empty salt or salted password is UNACCEPTABLE_CREDENTIAL; in Kafka an empty salt is stored, and an empty salted
  password is UNKNOWN_SERVER_ERROR.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from kafkapy.errors import Errors, KafkaError
from kafkapy.metadata.tree import wait_for_all
from kafkapy.protocol.apis import ALTER_USER_SCRAM_CREDENTIALS, DESCRIBE_USER_SCRAM_CREDENTIALS
from kafkapy.runtime.printable import one_word
from kafkapy.security.sasl.scram import (
    LEAST_ITERATIONS,
    MOST_ITERATIONS,
    SCRAM_TYPES,
    ScramCredential,
    credential_from_salted,
)
from kafkapy.server.admission import NO_MESSAGE
from kafkapy.server.api_table import serves
from kafkapy.server.call import Call
from kafkapy.server.changes import changed
from kafkapy.server.checks import CLUSTER_DENIED, on_cluster

if TYPE_CHECKING:
    from kafkapy.server.services import Services

_NO_NAME = "Username must not be empty"
_TYPE_NUMBERS = {name: number for number, name in SCRAM_TYPES.items()}


@serves(
    DESCRIBE_USER_SCRAM_CREDENTIALS,
    pooled=True,
    checks=on_cluster("DESCRIBE", CLUSTER_DENIED + ", with a result without a name for each named user"),
)
def describe(broker: Services, call: Call, request: Any) -> Any:
    """Handle DescribeUserScramCredentials on the disk pool: return the mechanisms and iterations of each user, no keys.

    Null or an empty list means all users that have a SCRAM credential.
    """
    names = [one.name for one in request.users or ()]
    if call.denied:
        return _describe_refused(len(names))
    results = [_described(broker, name) for name in names or broker.users.all()]
    if names:
        counts = Counter(names)
        results = [
            _result(
                name, Errors.DUPLICATE_RESOURCE, f"Cannot describe SCRAM credentials for the same user twice: {name}"
            )
            if counts[name] > 1 and name
            else result
            for name, result in zip(names, results, strict=True)
        ]
        results = list({result.user: result for result in results}.values())
    else:
        results = [result for result in results if result.error_code != Errors.RESOURCE_NOT_FOUND]
    return DESCRIBE_USER_SCRAM_CREDENTIALS.Response(error_code=Errors.NONE, error_message=None, results=results)


def _describe_refused(count: int) -> Any:
    """Return the response to a client that may not describe users, for a request that names `count` users. Kafka sends
    no response if the request asks for all users."""
    code = Errors.CLUSTER_AUTHORIZATION_FAILED
    return DESCRIBE_USER_SCRAM_CREDENTIALS.Response(
        error_code=code,
        error_message=None,
        results=[_result("", code, None) for _ in range(count)],
    )


def _described(broker: Services, name: str) -> Any:
    if not name:
        return _result(name, Errors.RESOURCE_NOT_FOUND, _NO_NAME)
    try:
        iterations = broker.users.iterations(name)
    except ValueError:
        return _result(name, Errors.UNKNOWN_SERVER_ERROR, "a stored credential of this user cannot be read")
    if not iterations:
        return _result(
            name, Errors.RESOURCE_NOT_FOUND, f"Attempt to describe a user credential that does not exist: {name}"
        )
    result = _result(name, Errors.NONE, None)
    info = DESCRIBE_USER_SCRAM_CREDENTIALS.Response.Results.CredentialInfos
    result.credential_infos = [
        info(mechanism=_TYPE_NUMBERS[mechanism], iterations=count) for mechanism, count in iterations.items()
    ]
    return result


def _result(name: str, code: int, message: str | None) -> Any:
    return DESCRIBE_USER_SCRAM_CREDENTIALS.Response.Results(
        user=name, error_code=code, error_message=message, credential_infos=[]
    )


@serves(
    ALTER_USER_SCRAM_CREDENTIALS,
    pooled=True,
    checks=on_cluster("ALTER", CLUSTER_DENIED + " for each user"),
)
def alter(broker: Services, call: Call, request: Any) -> Any:
    """Handle AlterUserScramCredentials on the disk pool: set and delete credentials, and return an error for each user.

    A user with any invalid entry is not changed at all.
    """
    if call.denied:
        error = KafkaError(Errors.CLUSTER_AUTHORIZATION_FAILED, NO_MESSAGE)
        names = sorted({one.name for one in (*request.upsertions, *request.deletions)})
        return ALTER_USER_SCRAM_CREDENTIALS.Response(results=[_altered(name, error) for name in names])
    failed = _invalid(request.upsertions, request.deletions)
    changes: dict[str, dict[str, ScramCredential | None]] = {}
    for one in request.upsertions:
        if one.name not in failed:
            mechanism = SCRAM_TYPES[one.mechanism]
            changes.setdefault(one.name, {})[mechanism] = credential_from_salted(
                mechanism, bytes(one.salted_password), bytes(one.salt), one.iterations
            )
    for one in request.deletions:
        if one.name not in failed:
            changes.setdefault(one.name, {})[SCRAM_TYPES[one.mechanism]] = None
    errors = wait_for_all([partial(broker.users.alter, name, change) for name, change in changes.items()])
    for (name, change), problem in zip(changes.items(), errors, strict=True):
        if problem is None:
            changed(call, f"user {one_word(name)}", [_shown(*one) for one in change.items()])
    results = [_altered(name, error) for name, error in failed.items()]
    results += [_altered(name, error) for name, error in zip(changes, errors, strict=True)]
    return ALTER_USER_SCRAM_CREDENTIALS.Response(results=results)


def _shown(mechanism: str, credential: ScramCredential | None) -> str:
    """Return the change of a credential as the audit log shows it: without keys."""
    return f"{mechanism} deleted" if credential is None else f"{mechanism} set with {credential.iterations} iterations"


def _altered(name: str, error: KafkaError | None) -> Any:
    return ALTER_USER_SCRAM_CREDENTIALS.Response.Results(
        user=name,
        error_code=Errors.NONE if error is None else error.code,
        error_message=None if error is None else error.message or None,
    )


def _invalid(upsertions: Iterable[Any], deletions: Iterable[Any]) -> dict[str, KafkaError]:
    """Return the error of each user that has an invalid entry in the request. The checks are in the order of Kafka's,
    which decides the error of a user with several invalid entries."""
    failed: dict[str, KafkaError] = {}
    for one in deletions:
        if not one.name:
            failed[one.name] = KafkaError(Errors.UNACCEPTABLE_CREDENTIAL, _NO_NAME)
        elif one.mechanism not in SCRAM_TYPES:
            failed[one.name] = _unknown_mechanism()
    for one in upsertions:
        if not one.name:
            failed[one.name] = KafkaError(Errors.UNACCEPTABLE_CREDENTIAL, _NO_NAME)
        elif one.mechanism not in SCRAM_TYPES:
            failed[one.name] = _unknown_mechanism()
        elif one.iterations < LEAST_ITERATIONS:
            failed[one.name] = KafkaError(Errors.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
        elif one.iterations > MOST_ITERATIONS:
            failed[one.name] = KafkaError(Errors.UNACCEPTABLE_CREDENTIAL, "Too many iterations")
        elif not one.salt or not one.salted_password:
            failed[one.name] = KafkaError(Errors.UNACCEPTABLE_CREDENTIAL, "Salt and password must not be empty")
    entries = Counter((one.name, one.mechanism) for one in (*upsertions, *deletions))
    for (name, _), count in entries.items():
        if count > 1 and name not in failed:
            failed[name] = KafkaError(
                Errors.DUPLICATE_RESOURCE, "A user credential cannot be altered twice in the same request"
            )
    return failed


def _unknown_mechanism() -> KafkaError:
    return KafkaError(Errors.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
