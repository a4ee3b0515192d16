"""Access control lists (ACLs) as in Kafka: what they are, how they are stored, and the rules by which they decide."""
