"""Where tables lie: the local file system, object stores, HDFS."""
