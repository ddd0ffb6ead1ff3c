"""Prepares the stores of docker-compose.yaml once they are up; may run again at any time."""

import os
import subprocess

from pyarrow import fs

subprocess.run(["airflow", "db", "migrate"], check=True)

store = fs.S3FileSystem(endpoint_override=os.environ["AWS_ENDPOINT_URL"], allow_bucket_creation=True)
store.create_dir(os.environ["LAKE_BUCKET"])
