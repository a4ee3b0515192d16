"""The version of kafkapy, in the one place that the build, the command line and the logs read."""

VERSION = "0.1.0"
