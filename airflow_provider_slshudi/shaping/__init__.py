"""What becomes of a log before it is a row: expressions over its keys, filters, masks."""
