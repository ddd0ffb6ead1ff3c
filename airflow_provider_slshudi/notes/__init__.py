"""What one process leaves for another, in files of its own beside the table's timeline."""

ROOT = ".hoodie/slshudi"
"""Where this package keeps what is its own in a table."""
