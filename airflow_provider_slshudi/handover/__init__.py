"""Files that one process leaves for another, beside the table's timeline."""

ROOT = ".hoodie/slshudi"
"""The folder of this package's own files within a table."""
