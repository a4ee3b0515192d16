"""The offset, time and transaction indexes of a segment, and their repair."""
