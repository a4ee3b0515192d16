"""Client quotas (KIP-13, KIP-124, KIP-599): how much the clients of a broker may use, by user and client id."""
