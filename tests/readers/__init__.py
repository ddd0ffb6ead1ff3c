"""Which query engines read the package's tables, in which form: `python -m tests.readers` asks them all."""
