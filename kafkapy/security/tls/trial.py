"""A handshake in memory, without sockets, to see whether two contexts accept each other."""

import ssl

_MAX_TURNS = 20


class TrialError(Exception):
    """Raised when the handshake fails. The message names the side that refused the other, and why."""


def handshake(server: ssl.SSLContext, client: ssl.SSLContext, host: str | None = None) -> ssl.SSLObject:
    """Return the server's end of a finished handshake. Raises TrialError if one side refuses the other.

    The client verifies `host` if its context says so. In TLS 1.3 the client is done before the server has verified its
    certificate, so both ends are driven until the server is done, too.
    """
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = {
        "client": client.wrap_bio(to_client, to_server, server_hostname=host),
        "server": server.wrap_bio(to_server, to_client, server_side=True),
    }
    unfinished = set(ends)
    for _ in range(_MAX_TURNS):
        for side in sorted(unfinished):
            try:
                ends[side].do_handshake()
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLError as error:
                raise TrialError(f"the {side} refuses the {_other(side)}: {_reason(error)}") from error
            unfinished.discard(side)
        if not unfinished:
            return ends["server"]
    raise TrialError("the handshake does not end")


def _other(side: str) -> str:
    return "client" if side == "server" else "server"


def _reason(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return error.verify_message
    return (error.reason or str(error)).replace("_", " ").lower()
