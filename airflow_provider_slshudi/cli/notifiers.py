"""Whom a new pipeline's watch tells of failures, by the notifiers of Airflow's providers."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from importlib.util import find_spec

ALERTS = "smtp:ADDRESS, slack, apprise (webhooks, DingTalk, Feishu and others), none"
"""The answers that `alerts_of` takes, and none."""
_ADDRESS = re.compile(r"[^@\s\"\\{}]+@[^@\s\"\\{}]+")
_SUBJECT = "{{ dag.dag_id }}: a pipeline needs attention"
_TEXT, _HTML = "{{ exception }}", "{{ exception | e }}"


@dataclass(frozen=True)
class Alerts:
    """A notifier.

    Attributes:
        imports: the line of a DAG file that imports it.
        notifier: the expression that makes it.
        connection: Airflow's connection by which it tells.
        add_connection: the command that adds this connection.
    """

    imports: str
    notifier: str
    connection: str
    add_connection: str

    def has_connection(self) -> bool:
        """Whether Airflow has the connection."""
        from airflow.sdk import BaseHook

        try:
            BaseHook.get_connection(self.connection)
        except Exception:  # Airflow has several errors for one that it does not find
            return False
        return True


def alerts_of(text: str) -> Alerts:
    """The notifier that an answer names.

    Raises:
        ValueError: the answer is none of `ALERTS`, or its provider is not installed.
    """
    kind, _, whom = text.partition(":")
    addresses = [address.strip() for address in whom.split(",")]
    if kind not in ("smtp", *_BY_CONNECTION) or (kind == "smtp") != bool(whom):
        raise ValueError(f"expected {ALERTS}")
    if kind == "smtp" and not all(map(_ADDRESS.fullmatch, addresses)):
        raise ValueError("expected smtp: and mail addresses, with commas between")
    if find_spec(f"airflow.providers.{kind}") is None:
        raise ValueError(f"it needs `pip install apache-airflow-providers-{kind}` on all machines of Airflow")
    return _smtp(addresses) if kind == "smtp" else _BY_CONNECTION[kind]


def _smtp(addresses: list[str]) -> Alerts:
    return Alerts(
        "from airflow.providers.smtp.notifications.smtp import SmtpNotifier",
        f'SmtpNotifier(to={json.dumps(addresses)}, subject="{_SUBJECT}", html_content="<pre>{_HTML}</pre>")',
        "smtp_default",
        "airflow connections add smtp_default --conn-type smtp --conn-host HOST --conn-login USER --conn-password ... "
        '--conn-extra \'{"from_email": "airflow@EXAMPLE"}\'',
    )


_BY_CONNECTION = {
    "slack": Alerts(
        "from airflow.providers.slack.notifications.slack_webhook import SlackWebhookNotifier",
        f'SlackWebhookNotifier(text="{_SUBJECT}\\n{_TEXT}")',
        "slack_default",
        "airflow connections add slack_default --conn-type slackwebhook --conn-password https://hooks.slack.com/...",
    ),
    # Apprise's addresses: https://appriseit.com/services/
    "apprise": Alerts(
        "from airflow.providers.apprise.notifications.apprise import AppriseNotifier",
        f'AppriseNotifier(title="{_SUBJECT}", body="{_TEXT}")',
        "apprise_default",
        "airflow connections add apprise_default --conn-type apprise --conn-extra "
        """'{"config": [{"path": "dingtalk://TOKEN, feishu://TOKEN, json://HOST/PATH or another of Apprise"}]}'""",
    ),
}
"""The notifiers whose connection says who is told."""
