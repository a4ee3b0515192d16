"""Records and batches of all message formats: reading, building, compression, validation and conversion."""
