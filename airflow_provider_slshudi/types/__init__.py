"""The types of columns, the patterns of times in logs, and the paths to values in JSON texts."""
