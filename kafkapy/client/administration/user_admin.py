"""An admin client for the SCRAM users of a cluster (KIP-554)."""

from collections.abc import Iterable, Mapping
from typing import Any

from kafkapy.client.cluster import ClusterClient
from kafkapy.client.responses import check
from kafkapy.errors import Errors, KafkaError
from kafkapy.protocol import apis
from kafkapy.security.sasl.scram import LEAST_ITERATIONS, SCRAM_TYPES, new_salt, salted_password

_NUMBERS = {name: number for number, name in SCRAM_TYPES.items()}


class UserAdmin(ClusterClient):
    """A blocking admin client for SCRAM users. Passwords are salted here and never sent.

    Every method raises KafkaError for the first error in the broker's response, and ClientError if no response comes.
    """

    def list_users(self) -> dict[str, dict[str, int]]:
        """Return the number of iterations of each credential, by user and mechanism."""
        request = apis.DESCRIBE_USER_SCRAM_CREDENTIALS.Request(users=None)
        response = self.cluster.any_connection().call(apis.DESCRIBE_USER_SCRAM_CREDENTIALS, request)
        check(response.error_code, "the users", response.error_message)
        found = {}
        for one in response.results:
            check(one.error_code, f"user {one.user!r}", one.error_message)
            found[one.user] = {SCRAM_TYPES[info.mechanism]: info.iterations for info in one.credential_infos}
        return found

    def set_password(
        self,
        user: str,
        password: str,
        mechanisms: Iterable[str] = tuple(_NUMBERS),
        iterations: int = LEAST_ITERATIONS,
    ) -> None:
        """Create the user, or change the password, for these mechanisms (SCRAM-SHA-256, SCRAM-SHA-512)."""
        shape = apis.ALTER_USER_SCRAM_CREDENTIALS.Request
        upsertions = []
        for mechanism in mechanisms:
            salt = new_salt()
            salted = salted_password(mechanism, password, salt, iterations)
            upsertions.append(
                shape.Upsertions(
                    name=user,
                    mechanism=_number(mechanism),
                    iterations=iterations,
                    salt=salt,
                    salted_password=salted,
                )
            )
        self._alter(user, shape(deletions=[], upsertions=upsertions))

    def delete_user(self, user: str, mechanisms: Iterable[str] | None = None) -> None:
        """Delete the user's credentials for these mechanisms; None means all that the user has."""
        chosen: Iterable[str]
        if mechanisms is None:
            known: Mapping[str, int] = self.list_users().get(user, {})
            if not known:
                raise KafkaError(Errors.RESOURCE_NOT_FOUND, f"there is no user {user}")
            chosen = known
        else:
            chosen = mechanisms
        shape = apis.ALTER_USER_SCRAM_CREDENTIALS.Request
        deletions = [shape.Deletions(name=user, mechanism=_number(mechanism)) for mechanism in chosen]
        self._alter(user, shape(deletions=deletions, upsertions=[]))

    def _alter(self, user: str, request: Any) -> None:
        for one in self.cluster.ask_controller(apis.ALTER_USER_SCRAM_CREDENTIALS, request, "results"):
            check(one.error_code, f"user {user!r}", one.error_message)


def _number(mechanism: str) -> int:
    number = _NUMBERS.get(mechanism)
    if number is None:
        raise KafkaError(
            Errors.UNSUPPORTED_SASL_MECHANISM,
            f"{mechanism} is not a SCRAM mechanism; it may be {' or '.join(_NUMBERS)}",
        )
    return number
