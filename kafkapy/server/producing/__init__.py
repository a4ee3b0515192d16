"""Produce requests: joining their records into appends, and the checks of transactional ones."""
