"""TLS contexts from key and trust stores, the names of principals, and SASL mechanisms. Nothing here has a socket."""
