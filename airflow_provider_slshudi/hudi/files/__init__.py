"""Files of the table, written on executors: base files, log files, merging, markers."""
