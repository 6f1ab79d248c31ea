"""A job every hour from Airflow: what is there is taken in, then the task ends."""

import datetime as dt

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG

with DAG(
    "fluvial_orders",
    schedule="@hourly",
    start_date=dt.datetime(2026, 1, 1, tzinfo=dt.UTC),
    catchup=False,
    max_active_runs=1,  # a checkpoint belongs to one run at a time
) as dag:
    check = BashOperator(
        task_id="check",
        bash_command="fluvial validate /etc/fluvial/orders.yaml --profile once --online",
    )
    run = BashOperator(
        task_id="run",
        # exec: SIGTERM, when the task is cancelled, reaches the job and not a shell
        bash_command="exec fluvial run /etc/fluvial/orders.yaml --profile once --quiet --json",
        cwd="/var/lib/fluvial",
        retries=3,  # a batch that was cut off is written once, by the next try
        retry_delay=dt.timedelta(minutes=1),
    )
    check >> run
