"""docker-compose.yaml against the project: what it names exists. Containers cannot run where the tests run."""

import ast
import json
import os
import re
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
import yaml
from cryptography.fernet import Fernet

from tests.waiting import until

ROOT = Path(__file__).resolve().parent.parent
TEXT = (ROOT / "docker-compose.yaml").read_text(encoding="utf-8")
DOCKERFILE = (ROOT / "docker" / "Dockerfile").read_text(encoding="utf-8")
COMPOSE = yaml.safe_load(re.sub(r"\$\{(\w+):-([^}]*)\}", r"\2", TEXT))
SERVICES = COMPOSE["services"]
OURS = {name: service for name, service in SERVICES.items() if "build" in service}


def package_text() -> str:
    return "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "airflow_provider_slshudi").rglob("*.py"))


def test_there_is_every_part() -> None:
    assert set(SERVICES) == {
        *("secrets", "postgres", "s3", "sls", "spark-master", "spark-worker"),
        *("airflow-init", "airflow-api-server", "airflow-scheduler", "airflow-dag-processor", "airflow-triggerer"),
        *("metrics-token", "prometheus", "grafana"),
    }


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_is_healthy_before_others_need_it(name: str) -> None:
    service = SERVICES[name]
    for other, need in service.get("depends_on", {}).items():
        if need["condition"] == "service_healthy":
            assert "healthcheck" in SERVICES[other]
        else:
            assert SERVICES[other]["restart"] == "no"
    assert "healthcheck" in service or service["restart"] == "no"


@pytest.mark.parametrize("name", SERVICES)
def test_ports_are_open_to_this_machine_alone(name: str) -> None:
    assert all(str(port).startswith("127.0.0.1:") for port in SERVICES[name].get("ports", []))


@pytest.mark.parametrize("name", SERVICES)
def test_volumes_are_declared_or_in_the_project(name: str) -> None:
    for volume in SERVICES[name].get("volumes", []):
        source = volume.split(":")[0]
        assert (ROOT / source).exists() if source.startswith(".") else source in COMPOSE["volumes"], volume


def test_hosts_that_are_named_are_services() -> None:
    settings = [str(value) for service in SERVICES.values() for value in service.get("environment", {}).values()]
    named = {
        host for text in settings for host in re.findall(r"(?:://|@)(?:[^@/\s\"]*@)?([a-z][a-z0-9-]*)(?=[:/\"])", text)
    }
    assert named
    assert named <= set(SERVICES)


@pytest.mark.parametrize("name", OURS)
def test_files_that_a_command_runs_are_in_the_image(name: str) -> None:
    for word in OURS[name]["command"]:
        if word.startswith("/opt/slshudi/"):
            path = word.removeprefix("/opt/slshudi/")
            assert (ROOT / path).is_file()
            assert path in DOCKERFILE


@pytest.mark.parametrize("line", re.findall(r"^COPY (?!--from)(.+)$", DOCKERFILE, re.MULTILINE))
def test_files_that_the_image_copies_exist(line: str) -> None:
    kept = re.findall(r"^!(.+)$", (ROOT / ".dockerignore").read_text(encoding="utf-8"), re.MULTILINE)
    for source in line.split()[:-1]:
        assert (ROOT / source).exists()
        assert source.split("/")[0] in kept


@pytest.mark.parametrize("path", sorted((ROOT / "docker").glob("*.py")), ids=lambda path: path.name)
def test_names_that_the_image_imports_exist(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(path.parent)
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            # As the interpreter would: an attribute, or else a module below.
            names = [alias.name for alias in node.names]
            assert node.module is not None
            module = __import__(node.module, fromlist=names)
            assert all(hasattr(module, name) for name in names)


def test_the_image_s_own_calls_exist() -> None:
    scripts = [ast.parse(script) for script in re.findall(r"python -c '([^']+)'", DOCKERFILE)]
    nodes = [node for script in scripts for node in ast.walk(script)]
    (imported,) = (node for node in nodes if isinstance(node, ast.ImportFrom))
    (name,) = (alias.name for alias in imported.names)
    module = getattr(__import__(str(imported.module), fromlist=[name]), name)
    called = [node.func for node in nodes if isinstance(node, ast.Call)]
    assert called
    for function in called:
        assert isinstance(function, ast.Attribute) and ast.unparse(function.value) == name
        assert callable(getattr(module, function.attr))


def test_the_local_server_takes_these_options_and_its_secret_by_environment() -> None:
    sls = SERVICES["sls"]
    help_ = [sys.executable, "-m", "airflow_provider_slshudi.local", "--help"]
    known = subprocess.run(help_, capture_output=True, text=True, timeout=60, check=True).stdout
    options = [word.split("=")[0] for word in sls["command"] if word.startswith("--")]
    assert not [option for option in options if option not in known]
    assert not [name for name in sls["environment"] if name not in package_text()]


def test_prometheus_reads_what_airflow_shows_with_the_token_that_is_kept() -> None:
    example, ours = (
        yaml.safe_load((ROOT / folder / "prometheus.yaml").read_text(encoding="utf-8"))
        for folder in ("monitoring", "docker")
    )
    (job,), (like) = ours["scrape_configs"], example["scrape_configs"][0]
    assert (job["job_name"], job["metrics_path"]) == (like["job_name"], like["metrics_path"])
    _, _, url, token, group = SERVICES["metrics-token"]["command"]
    assert group == "65534", "the user nobody of Prometheus' image"
    assert job["authorization"]["credentials_file"] == token
    assert [url] == [f"http://{target}" for target in job["static_configs"][0]["targets"]]
    mounted = {volume.split(":")[1] for volume in SERVICES["prometheus"]["volumes"]}
    assert {*ours["rule_files"], str(Path(token).parent)} <= mounted


def test_the_token_is_kept_in_the_file(tmp_path: Path) -> None:
    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps({"access_token": self.path}).encode())

    file = tmp_path / "airflow-token"
    with HTTPServer(("127.0.0.1", 0), Answer) as server:
        threading.Thread(target=server.handle_request).start()
        command: list[str | Path] = [
            sys.executable,
            ROOT / "docker" / "token.py",
            f"http://127.0.0.1:{server.server_port}",
            file,
        ]
        with subprocess.Popen(command) as kept:
            until("the token is there", file.exists)
            kept.kill()
    assert file.read_text() == "/auth/token"
    assert file.stat().st_mode & 0o077 == 0


def test_the_first_start_makes_secrets_that_later_ones_find(tmp_path: Path) -> None:
    environment = {"SLSHUDI_KEYS": str(tmp_path), "HOME": str(tmp_path / "home"), "PATH": os.environ["PATH"]}
    (tmp_path / "home").mkdir()

    def seen(**more: str) -> dict[str, str]:
        subprocess.run([sys.executable, ROOT / "docker" / "secrets_of.py"], env=environment, check=True)
        code = "import json, os, secrets_of; print(json.dumps(secrets_of.variables(os.environ)))"
        asked = {**environment, **more, "PYTHONPATH": str(ROOT / "docker")}
        answer = subprocess.run([sys.executable, "-c", code], env=asked, capture_output=True, text=True, check=True)
        found: dict[str, str] = json.loads(answer.stdout)
        return found

    first = seen()
    assert first == seen() and len({*first.values()}) == len(first)
    Fernet(first["AIRFLOW__CORE__FERNET_KEY"])
    named = {key for key, value in OURS["airflow-scheduler"]["environment"].items() if value is None}
    assert named == {*first, "SLSHUDI_SPARK_SECRET"} - {"SPARK_CONF_DIR"}
    settings = Path(first["SPARK_CONF_DIR"]) / "spark-defaults.conf"
    kept = settings.read_text()
    assert "spark.authenticate true\n" in kept
    for file in (settings, tmp_path / "secrets.json"):
        assert file.stat().st_mode & 0o077 == 0, file
    given = seen(AIRFLOW__API__SECRET_KEY="given", SLSHUDI_SPARK_SECRET="of one's own")
    assert given["AIRFLOW__API__SECRET_KEY"] == "given"
    assert "spark.authenticate.secret of one's own\n" in settings.read_text()


def test_airflow_is_one_version_of_the_truth() -> None:
    settings = [OURS[name]["environment"] for name in OURS if name.startswith("airflow-")]
    assert all(setting == settings[0] for setting in settings)


def test_options_of_airflow_exist() -> None:
    from airflow.configuration import conf

    known = {
        (section, option)
        for section, options in conf.configuration_description.items()
        for option in options["options"]
    }
    environment = OURS["airflow-scheduler"]["environment"]
    named = [key.lower().split("__", 2)[1:] for key in environment if key.startswith("AIRFLOW__")]
    assert named
    assert not [pair for pair in named if tuple(pair) not in known]


def test_connections_are_json_that_airflow_reads() -> None:
    from airflow.sdk import Connection

    from airflow_provider_slshudi.config.pipeline import Spark
    from airflow_provider_slshudi.config.sources import Source
    from airflow_provider_slshudi.settings import LEDGER_CONN_ID

    found = {}
    for key, value in OURS["airflow-scheduler"]["environment"].items():
        if key.startswith("AIRFLOW_CONN_"):
            json.loads(value)
            connection = Connection.from_json(value, conn_id=key.removeprefix("AIRFLOW_CONN_").lower())
            found[connection.conn_type] = connection
    ids = {connection.conn_id for connection in found.values()}
    assert ids == {Source.model_fields["connection"].default, Spark.model_fields["connection"].default, LEDGER_CONN_ID}
    assert set(found) == {"sls", "slshudi_ledger", "spark"}
    assert found["slshudi_ledger"].extra_dejson == {"dialect": "postgresql"}
    assert (ROOT / "docker" / "ledger.sql").read_text(encoding="utf-8").count(
        f"DATABASE {found['slshudi_ledger'].schema};"
    ) == 1
    assert found["slshudi_ledger"].password == SERVICES["postgres"]["environment"]["POSTGRES_PASSWORD"]
    assert found["sls"].password == SERVICES["sls"]["environment"]["SLSHUDI_LOCAL_SECRET"]
    assert f"--access-key-id={found['sls'].login}" in SERVICES["sls"]["command"]
    host = found["sls"].host
    assert host is not None
    assert f"--port={host.rpartition(':')[2]}" in SERVICES["sls"]["command"]


def test_every_secret_can_be_set_from_outside() -> None:
    for line in TEXT.splitlines():
        if re.search(r"(SECRET|PASSWORD|FERNET_KEY|\"password\")", line) and ":" in line:
            assert re.search(r"\$\{[A-Z0-9_]+:-", line), line
