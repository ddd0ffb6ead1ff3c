"""What a column may be, how a time is written in a log, where in a JSON text a value is."""
