"""Of the original consumer."""
