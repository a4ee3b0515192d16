"""Members of consumer groups: membership, assignment, offsets."""
