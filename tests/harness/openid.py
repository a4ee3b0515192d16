"""An OpenID provider on loopback that issues tokens and the keys to check them, and rotates its keys."""

from __future__ import annotations

import base64
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa

SECRET = "client-secret"


class OpenIdProvider:
    """Serves `/keys` (JSON Web Key Set) and `/token` (client credentials; the client id is the user of the token)."""

    def __init__(self, lifetime_s: float = 3600) -> None:
        self.lifetime_s = lifetime_s
        self.issued = 0
        self.reads = 0  # of the keys
        self._rotations = 0
        self.rotate()
        provider = self

        class Answers(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                provider.reads += 1
                self._send({"keys": [provider._public]})

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                user, _, secret = base64.b64decode(self.headers["Authorization"].split()[1]).decode().partition(":")
                if secret != SECRET:
                    self.send_error(401)
                    return
                self._send({"access_token": provider.token(user), "expires_in": provider.lifetime_s})

            def _send(self, value: dict[str, Any]) -> None:
                data = json.dumps(value).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
        self.keys_url = f"http://127.0.0.1:{self._server.server_port}/keys"
        self.token_url = f"http://127.0.0.1:{self._server.server_port}/token"
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    def rotate(self) -> None:
        """Sign later tokens with a new key, and forget the old one."""
        self._rotations += 1
        self._key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        public = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(self._key.public_key()))
        self._public = {**public, "kid": f"key-{self._rotations}", "use": "sig", "alg": "RS256"}

    def token(self, user: str) -> str:
        """Return a new token of this user."""
        self.issued += 1
        now = time.time()
        claims = {"sub": user, "iat": now, "exp": now + self.lifetime_s, "scope": "kafka", "iss": "test"}
        return jwt.encode(claims, self._key, "RS256", headers={"kid": self._public["kid"]})

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
