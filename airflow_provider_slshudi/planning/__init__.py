"""Plans the ranges of a batch from the ledger's data and the shards' facts. Pure."""
