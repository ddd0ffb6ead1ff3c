"""Pages in Airflow: a plugin whose routes show what `views` has. They read the ledger and write nothing."""
