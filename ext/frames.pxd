# Splits received bytes into frames. Only Python functions: one call splits everything that has arrived.
