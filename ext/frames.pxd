# Cutting received bytes into frames. Only Python functions: one call cuts everything that has arrived.
