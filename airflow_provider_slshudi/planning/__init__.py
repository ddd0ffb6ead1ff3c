"""What a batch reads: from the ledger's data and the shards' facts to ranges. Pure."""
