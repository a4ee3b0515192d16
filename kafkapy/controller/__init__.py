"""The controller: changes of partition leaders and topics, written to the metadata tree first, then sent to the
brokers.
"""
