"""The group coordinator and the transaction coordinator. Each stores its state in an internal topic and rebuilds the
state from that topic."""
