"""The group and transaction coordinators: their state is kept in the internal topics and rebuilt from them."""
