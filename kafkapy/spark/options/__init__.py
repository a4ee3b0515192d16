"""The options of sources and sinks: names, values, and error messages of one sentence."""
