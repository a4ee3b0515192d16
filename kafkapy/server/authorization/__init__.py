"""The authorizers: the one with ACLs, and one that asks a class of the operator; what they write to the audit log."""
