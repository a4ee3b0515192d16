"""SASL mechanisms without sockets: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 and OAUTHBEARER, for servers and clients.

Each mechanism is a state machine that takes the peer's message and returns the next one. `server.py` and `client.py`
describe the interfaces, and choose the mechanism by its name.
"""
