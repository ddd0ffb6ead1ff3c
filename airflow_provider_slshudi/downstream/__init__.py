"""What comes behind a commit: consumers, which get every commit once, and partitions that are complete."""
