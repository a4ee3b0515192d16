"""Who is in which group, where each group stands, which transactions are open: kept in the internal topics."""
