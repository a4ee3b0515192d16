"""The command `kafkapy tls`: checks certificates in files and those that a listener shows."""
