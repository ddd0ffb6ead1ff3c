"""The source: pulling the log groups of a logstore's shards and decoding them to Arrow.

Importing this package imports nothing heavy; its modules bring the SDK and pyarrow when they are imported.
"""
