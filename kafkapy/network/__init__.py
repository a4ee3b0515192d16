"""Who talks: listeners, acceptor, processors, connections, sends. Frames in, sends out; nothing of Kafka's messages."""
