"""What the cluster knows: a tree of versioned nodes and the registries written on it."""
