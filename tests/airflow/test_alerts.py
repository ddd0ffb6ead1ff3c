"""What init's DAG file names whom Airflow tells: a watch's failure arrives at a real server, over a socket."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from email import message_from_string
from email.policy import default
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from socketserver import StreamRequestHandler, ThreadingTCPServer
from typing import Any

import pytest
from airflow.sdk import DAG

from airflow_provider_slshudi.cli.draft import dag_file
from airflow_provider_slshudi.cli.notifiers import alerts_of
from airflow_provider_slshudi.doctor.finding import Verdict
from airflow_provider_slshudi.hooks import doctor
from tests.machine import connection

FOUND = "clicks: clicks_tail failed at plan: DataExpired"


@contextmanager
def served(server: ThreadingTCPServer | HTTPServer) -> Iterator[int]:
    """A server in a thread; gives its port."""
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield int(server.server_address[1])
    finally:
        server.shutdown()
        server.server_close()


def tell(name: str, kind: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls the notifier of the file that `init` writes, as Airflow does when the watch has failed."""
    file = folder / "clicks_dags.py"
    text = dag_file("clicks", alerts_of(kind))
    file.write_text(text.partition("tail = ")[0])
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(sys.modules, "clicks_dags", raising=False)
    notifier: Any = __import__("clicks_dags").alerts
    assert alerts_of(kind).has_connection()
    notifier({"dag": DAG("clicks_watch"), "exception": FOUND})


def test_a_mail_arrives_at_a_mail_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mails: list[str] = []

    class Smtp(StreamRequestHandler):
        def handle(self) -> None:
            """As much of RFC 5321 as a client without TLS and without a user needs."""
            self.wfile.write(b"220 here\r\n")
            while line := self.rfile.readline():
                word = line[:4].upper()
                if word == b"DATA":
                    self.wfile.write(b"354 go on\r\n")
                    lines = iter(self.rfile.readline, b".\r\n")
                    mails.append(b"".join(lines).decode())
                self.wfile.write(b"221 bye\r\n" if word == b"QUIT" else b"250 ok\r\n")
                if word == b"QUIT":
                    return

    with served(ThreadingTCPServer(("127.0.0.1", 0), Smtp)) as port:
        extra = {"from_email": "airflow@shop.example", "disable_ssl": "true", "disable_tls": "true"}
        described = connection("smtp", host="127.0.0.1", port=port, extra=extra)
        monkeypatch.setenv("AIRFLOW_CONN_SMTP_DEFAULT", described)
        tell("clicks", "smtp:ada@shop.example", tmp_path, monkeypatch)
    (mail,) = (message_from_string(text, policy=default) for text in mails)
    assert (mail["To"], mail["Subject"]) == ("ada@shop.example", "clicks_watch: a pipeline needs attention")
    assert any(FOUND in part.get_content() for part in mail.walk() if part.get_content_maintype() == "text")


def test_a_webhook_of_apprise_is_called(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("airflow.providers.apprise")
    bodies: list[dict[str, Any]] = []

    class Webhook(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            return

    with served(HTTPServer(("127.0.0.1", 0), Webhook)) as port:
        config = [{"path": f"json://127.0.0.1:{port}/alerts"}]
        monkeypatch.setenv("AIRFLOW_CONN_APPRISE_DEFAULT", connection("apprise", extra={"config": config}))
        tell("clicks", "apprise", tmp_path, monkeypatch)
    (body,) = bodies
    assert body["title"] == "clicks_watch: a pipeline needs attention" and body["message"] == FOUND


@pytest.mark.parametrize(
    ("watched_by", "known_alerts", "verdict"),
    [
        ("", {"clicks": False}, Verdict.WARNING),
        ("", {"clicks": True}, Verdict.OK),
        ("", {}, Verdict.UNKNOWN),
        ("Prometheus", {"clicks": False}, Verdict.OK),
    ],
)
def test_doctor_says_where_airflow_tells_no_person_of_failures(
    monkeypatch: pytest.MonkeyPatch, watched_by: str, known_alerts: dict[str, bool], verdict: Verdict
) -> None:
    monkeypatch.setenv("AIRFLOW__SLSHUDI__WATCHED_BY", watched_by)
    seen = doctor._alerts("clicks", lambda: known_alerts)
    assert (seen.verdict, bool(seen.mend)) == (verdict, verdict is Verdict.WARNING)
