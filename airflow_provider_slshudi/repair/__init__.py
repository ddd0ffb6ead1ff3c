"""What an operator starts when a pipeline needs one: recovery, rebuilding, giving up, replaying, skipping."""
