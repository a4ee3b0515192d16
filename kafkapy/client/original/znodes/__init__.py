"""The znodes of brokers, topics and consumer groups, as the original clients use them."""
