"""Logins of clients on SASL listeners, and their sessions afterwards (Kafka's SaslServerAuthenticator)."""
