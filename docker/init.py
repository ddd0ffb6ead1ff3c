"""Prepares the stores of docker-compose.yaml once they are up; may run again at any time."""

import os
import subprocess
from pathlib import Path

from aliyun.log import LogException
from pyarrow import fs

from airflow_provider_slshudi.cli.demo.put import sdk_client
from airflow_provider_slshudi.cli.demo.run import write_example
from airflow_provider_slshudi.hooks.sls import SlsHook

subprocess.run(["airflow", "db", "migrate"], check=True)

bucket = os.environ["LAKE_BUCKET"]
store = fs.S3FileSystem(endpoint_override=os.environ["AWS_ENDPOINT_URL"], allow_bucket_creation=True)
store.create_dir(bucket)

dags, pipelines = (
    Path(os.environ[name]) for name in ("AIRFLOW__CORE__DAGS_FOLDER", "AIRFLOW__SLSHUDI__PIPELINES_FOLDER")
)
source = write_example(dags, pipelines, f"s3a://{bucket}/ad_events").source
client = sdk_client(SlsHook(source.connection).connection())
for create, arguments in (
    (client.create_project, (source.project, "local")),
    (client.create_logstore, (source.project, source.logstore, 7, 4)),
):
    try:
        create(*arguments)
    except LogException as error:
        if not error.get_error_code().endswith("AlreadyExist"):
            raise
