"""dbt over the complete hours: each hour in its model once it is complete, and replaced once it is complete again.

dbt and Airflow want different versions of the same packages, so dbt has an environment of its own, made from
dbt/requirements.txt. The Airflow variable `slshudi_dbt` names its program; without it, it is the `dbt` of the PATH.
"""

import json
from datetime import datetime
from pathlib import Path
from typing import Any

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG, task

from airflow_provider_slshudi import SlsHudiChangesOperator, SlsHudiConfirmOperator, partitions_asset
from airflow_provider_slshudi.settings import pipeline

PIPELINE = "ad_impressions"
PROJECT = Path(__file__).parent / "dbt"

with DAG(
    "ad_impressions_dbt",
    schedule=[partitions_asset(PIPELINE)],
    start_date=datetime(2026, 1, 1),
    catchup=False,
    max_active_runs=1,
    tags=["slshudi", f"slshudi:{PIPELINE}"],
) as dag:
    # Linux takes up to 128 KiB in one argument: some 800 names of files.
    taken = SlsHudiChangesOperator(task_id="take", pipeline=PIPELINE, consumer="dbt", of="partitions", most=24)

    @task
    def find_files(changes: dict[str, Any]) -> dict[str, str]:
        from hudi import HudiReadOptions, HudiTableBuilder

        path = pipeline(PIPELINE).table.path
        table = HudiTableBuilder.from_base_uri(path).build()
        # An hour that was completed twice meanwhile is there twice.
        hours = sorted({item["partition"] for item in changes["partitions"]})
        slices = [
            file_slice
            for hour in hours
            for file_slice in table.get_file_slices(HudiReadOptions(filters=[("event_hour", "=", hour)]))
        ]
        files = [f"{path}/{file_slice.base_file_relative_path()}" for file_slice in slices]
        database = f"{path.removeprefix('file://')}_dbt.duckdb"
        return {"DBT_VARS": json.dumps({"hours": hours, "files": files, "database": database})}

    run = BashOperator(
        task_id="dbt_run",
        # The folder of DAGs may be read-only; the operator's working directory is temporary.
        bash_command="{{ var.value.get('slshudi_dbt', 'dbt') }} run"
        ' --project-dir "{{ params.project }}" --profiles-dir "{{ params.project }}"'
        ' --target-path "$PWD" --log-path "$PWD" --vars "$DBT_VARS"',
        params={"project": str(PROJECT)},
        env=find_files(taken.output),
        append_env=True,
    )
    run >> SlsHudiConfirmOperator(task_id="confirm", pipeline=PIPELINE, changes=taken.output)
