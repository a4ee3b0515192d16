"""The metadata tree stored in an SQLite file, for a broker without ZooKeeper."""
