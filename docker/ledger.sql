-- Run once, when the volume is empty. Airflow's own database is made by POSTGRES_DB.
CREATE DATABASE slshudi;
