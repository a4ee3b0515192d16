"""TLS over a blocking socket.

Only connections that use TLS import this module, because Python takes 12 ms to import `ssl`.
"""

from __future__ import annotations

import socket
import ssl

from kafkapy.client.errors import AuthenticationFailed, ConnectionFailed

# Descriptions in place of OpenSSL's names, which say little to a person.
_REASONS = {
    "WRONG_VERSION_NUMBER": "the server does not speak TLS",
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "a client certificate is needed",
    "SSLV3_ALERT_HANDSHAKE_FAILURE": "the broker found no protocol, cipher or certificate in common",
    "TLSV1_ALERT_UNKNOWN_CA": "the broker does not trust the client's certificate",
    "SSLV3_ALERT_BAD_CERTIFICATE": "the broker does not accept the client's certificate, or needs one",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "the broker does not accept the client's certificate",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "the client's certificate has expired",
}


def encrypt(connected: socket.socket, context: ssl.SSLContext, host: str, address: str) -> ssl.SSLSocket:
    """Do the TLS handshake, within the socket's time-out, and return the TLS socket in place of `connected`.

    `host` is the name that the certificate must have. If the handshake fails, the socket is closed. Raise
    AuthenticationFailed if the certificate is not accepted or nothing can be agreed on, and ConnectionFailed if the
    connection fails.
    """
    try:
        return context.wrap_socket(connected, server_hostname=host)
    except ssl.SSLCertVerificationError as error:
        reason = error.verify_message.rstrip(".")
        raise AuthenticationFailed(f"The certificate of {address} is not accepted: {reason}.") from error
    except (ssl.SSLEOFError, ConnectionResetError) as error:
        raise ConnectionFailed(
            f"{address} closed the connection during the TLS handshake. Is TLS used there?"
        ) from error
    except TimeoutError as error:
        raise ConnectionFailed(f"The TLS handshake with {address} took too long. Is TLS used there?") from error
    except ssl.SSLError as error:
        raise AuthenticationFailed(f"The TLS handshake with {address} failed: {reason_of(error)}.") from error
    except (OSError, ValueError) as error:  # ValueError: no certificate can have this host name
        raise ConnectionFailed(f"No TLS connection to {address}: {error}.") from error
    finally:
        connected.close()  # does nothing if the TLS socket has taken the descriptor over


def has_buffered(connection: socket.socket) -> bool:
    """Return True if decrypted bytes of a TLS socket wait in memory."""
    return isinstance(connection, ssl.SSLSocket) and connection.pending() > 0


def receive_at_once(connection: socket.socket, buffer: memoryview) -> int | None:
    """Receive into `buffer` what has arrived, and return the number of bytes: 0 at the end of the stream.

    Return None if nothing has arrived but a TLS message that carries no bytes, such as a key update.
    """
    connection.settimeout(0)
    try:
        return connection.recv_into(buffer)
    except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
        return None


def is_refusal(error: OSError) -> bool:
    """Return True if an error of a TLS socket says that the peer has refused something, such as a certificate."""
    return isinstance(error, ssl.SSLError) and not isinstance(error, ssl.SSLEOFError)


def reason_of(error: ssl.SSLError) -> str:
    """Return a short description of a TLS error, for messages."""
    return _REASONS.get(error.reason or "") or (error.reason or str(error)).replace("_", " ").lower()
