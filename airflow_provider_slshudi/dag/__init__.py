"""DAGs of this provider: factories, and what Airflow shows of them."""
