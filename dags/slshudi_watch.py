"""Looks every quarter of an hour whether the pipeline asks for a person; if so, Airflow sends a mail."""

from datetime import timedelta

from airflow.providers.smtp.notifications.smtp import SmtpNotifier

from airflow_provider_slshudi import watch_dag

# Slack's, PagerDuty's, or a notifier of your own do as well: `exception` is what was found, a line each.
mail = SmtpNotifier(
    from_email="airflow@example.com",
    to="data@example.com",
    subject="{{ dag.dag_id }}: a pipeline asks for you",
    html_content="<pre>{{ exception }}</pre>",
)

dag = watch_dag(
    "ad_events",
    behind=timedelta(minutes=15),
    dangling=timedelta(minutes=15),
    expires=timedelta(hours=6),
    default_args={"on_failure_callback": [mail]},
)
