"""The metastore: what was decided for a pipeline, who decides now, and which cursors are committed. Knows only SQL."""
