"""Kafka's socket server: listeners, acceptor, processors, connections and sends.

This package receives frames and sends replies. It knows nothing of the messages in the frames.
"""
