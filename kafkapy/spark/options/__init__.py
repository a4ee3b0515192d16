"""The options of the sources and the sink: their names, values and checks. Each error message is one sentence."""
