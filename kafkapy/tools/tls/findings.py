"""What clients would reject about a certificate chain."""

import math
import re
from collections.abc import Sequence
from datetime import datetime, timezone
from itertools import pairwise
from typing import Any, Literal, NamedTuple

from kafkapy.security.tls.certificates import Certificate
from kafkapy.tools.common.output import counted

_SMALLEST_RSA = 2048


class Finding(NamedTuple):
    """A finding about a certificate chain. An error makes clients refuse it, a warning only some of them, or later."""

    level: Literal["error", "warning"]
    message: str


def described(certificate: Certificate) -> dict[str, Any]:
    """Return a certificate as a document for --json."""
    return {
        "subject": certificate.subject,
        "issuer": certificate.issuer,
        "names": [name if kind in ("DNS", "IP") else f"{kind}:{name}" for kind, name in certificate.alternative_names],
        "key": certificate.key,
        "notBefore": f"{certificate.not_before:%FT%TZ}",
        "notAfter": f"{certificate.not_after:%FT%TZ}",
        "daysLeft": math.floor(certificate.days_left() * 10) / 10,
        "authority": certificate.is_authority,
        "sha256": certificate.fingerprint,
    }


def validity(certificate: Certificate, days: int) -> list[Finding]:
    """Return an error if the certificate is not valid now, or a warning if it expires within `days` days."""
    left = certificate.days_left()
    if left < 0:
        return [Finding("error", f"{certificate.subject} expired on {certificate.not_after:%F}")]
    if certificate.not_before > datetime.now(timezone.utc):
        return [Finding("error", f"{certificate.subject} is valid only from {certificate.not_before:%F %T} UTC on")]
    if left < days:
        return [Finding("warning", f"{certificate.subject} expires in {counted(int(left), 'day')}")]
    return []


def of_chain(chain: Sequence[Certificate], days: int, *, server: bool = True) -> list[Finding]:
    """Return the findings about a chain, the certificate of the server (or client) first."""
    leaf = chain[0]
    found = [finding for certificate in chain for finding in validity(certificate, days)]
    if not leaf.may_be(server=server):
        side = "server" if server else "client"
        found.append(Finding("error", f"the extended key usage of {leaf.subject} does not allow it to be a {side}"))
    if server:
        found += _names(leaf)
    for lower, upper in pairwise(chain):
        if lower.issuer_der != upper.subject_der:
            found.append(
                Finding("error", f"after {lower.subject} comes {upper.subject}, not its issuer {lower.issuer}")
            )
        elif not upper.is_authority:
            found.append(Finding("error", f"{upper.subject} signed {lower.subject}, but is no authority"))
    for certificate in chain:
        kind, _, bits = certificate.key.partition(" ")
        if kind == "RSA" and int(bits) < _SMALLEST_RSA:
            found.append(Finding("error", f"the key of {certificate.subject} is too short: RSA {bits}"))
    return found


def trust_needed(chain: Sequence[Certificate]) -> str:
    """Return the name of the authority that the other side has to trust."""
    return chain[-1].subject if chain[-1].is_self_issued else chain[-1].issuer


def _names(leaf: Certificate) -> list[Finding]:
    if any(kind in ("DNS", "IP") for kind, _ in leaf.alternative_names):
        return []
    common = re.search(r"(?:^|,)CN=((?:[^,\\]|\\.)*)", leaf.subject)
    if common is None:
        return [Finding("error", f"{leaf.subject} has no host name: clients that verify names refuse it")]
    return [
        Finding(
            "warning",
            f"the only host name of {leaf.subject} is the CN {common[1]}: clients in Go refuse it; add it as a subject "
            "alternative name",
        )
    ]
