"""The command line `kafkapy`: a module or folder for each command, and `common` for code that several commands use."""
