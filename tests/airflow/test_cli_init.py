"""`slshudi init`: from a logstore to a pipeline that runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import namedtuple
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from airflow.dag_processing.dagbag import BundleDagBag
from aliyun.log import LogClient, LogItem, PutLogsRequest

from airflow_provider_slshudi import cli, settings
from airflow_provider_slshudi.config.load import load_pipeline
from airflow_provider_slshudi.config.pipeline import Pipeline
from airflow_provider_slshudi.config.table import EventTimePartition
from airflow_provider_slshudi.handover.names import alerts_by_pipeline
from airflow_provider_slshudi.hudi.schema import avro_schema
from airflow_provider_slshudi.ledger.records import Kind, State
from airflow_provider_slshudi.local import LocalSls
from airflow_provider_slshudi.planning.ranges import Range
from airflow_provider_slshudi.services.verification import verify
from airflow_provider_slshudi.sls.service import LogService
from airflow_provider_slshudi.transaction.context import Run, Work
from tests.ledgers import ledger_in
from tests.local.sdk import PROJECT, by_ip, make_logstore
from tests.machine import connection
from tests.pipelines import ad_events
from tests.scenarios import Scenario, SessionLauncher, log
from tests.services import closed_port

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SLS = "AIRFLOW_CONN_SLS_DEFAULT"
ROLES = ("tail", "operations")
ZonedAirflow = namedtuple("ZonedAirflow", "name")
Logs = Sequence[Sequence[tuple[str | bytes, str | bytes]]]


@pytest.fixture(autouse=True)
def dags(tmp_path: Path, ledger_connection: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Airflow's only folder of DAGs; what Airflow and the command set for their process is undone."""
    monkeypatch.setenv("_AIRFLOW_PROCESS_CONTEXT", "server")
    monkeypatch.setenv("AIRFLOW__LOGGING__LOGGING_LEVEL", "WARNING")
    monkeypatch.delenv("AIRFLOW__SLSHUDI__PIPELINES_FOLDER", raising=False)
    monkeypatch.setattr(sys, "path", [*sys.path])
    folder = tmp_path / "dags"
    configure(monkeypatch, folder)
    return folder


def configure(monkeypatch: pytest.MonkeyPatch, *folders: Path) -> None:
    local = "airflow.dag_processing.bundles.local.LocalDagBundle"
    bundles = [{"name": path.name, "classpath": local, "kwargs": {"path": str(path)}} for path in folders]
    monkeypatch.setenv("AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST", json.dumps(bundles))


@pytest.fixture
def client(sls: LocalSls, monkeypatch: pytest.MonkeyPatch) -> LogClient:
    """The official SDK's client of the service that the only connection leads to."""
    of = sls.connection()
    fields = {"host": of.endpoint, "login": of.access_key_id, "password": of.access_key_secret.reveal()}
    monkeypatch.setenv(SLS, connection("sls", **fields))
    return by_ip(of)


@pytest.fixture
def filled(client: LogClient) -> Callable[..., str]:
    """Makes logstores of logs, ten to a log group."""

    def make(logs: Logs, shards: int = 2) -> str:
        logstore = make_logstore(client, f"init-{uuid4().hex[:12]}", shards)
        for first in range(0, len(logs), 10):
            items = [
                LogItem(1_767_225_600 + first + number, contents=list(contents))
                for number, contents in enumerate(logs[first : first + 10])
            ]
            client.put_logs(PutLogsRequest(PROJECT, logstore, "ads", "10.0.0.1", items))
        return logstore

    return make


def init(*arguments: str | Path, name: str = "clicks") -> int:
    return cli.main(["init", name, *map(str, arguments)])


def given(logstore: str, tmp_path: Path) -> list[str]:
    """The options that have no default on a machine without pipelines."""
    return ["--project", PROJECT, "--logstore", logstore, "--path", f"file://{tmp_path}/lake/clicks"]


def left(folder: Path) -> list[str]:
    """All files and folders below."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*")) if folder.exists() else []


def dag_ids(dags: Path) -> set[str]:
    """What Airflow finds in the folder of DAGs."""
    bag = BundleDagBag(str(dags), bundle_path=dags, bundle_name="dags")
    assert not bag.import_errors
    return set(bag.dag_ids)


def columns(pipeline: Pipeline) -> dict[str, tuple[str, str | None]]:
    return {column.source_key: (column.type, column.format) for column in pipeline.columns}


def test_a_pipeline_is_made_of_a_logstore_and_the_ledger_is_not_touched(
    filled: Callable[..., str],
    dags: Path,
    tmp_path: Path,
    ledger_connection: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    logstore = filled([log(number) for number in range(70)])
    assert init(*given(logstore, tmp_path)) == 0
    shown = capsys.readouterr()
    assert left(dags) == ["clicks_dags.py", "pipelines", "pipelines/clicks.yaml"]
    pipeline = settings.pipeline("clicks")
    assert pipeline == load_pipeline(dags / "pipelines" / "clicks.yaml")
    assert (pipeline.source.identity, pipeline.source.start) == (f"sls://{PROJECT}/{logstore}", "begin")
    assert columns(pipeline) == {
        "__time__": ("timestamp", "seconds"),
        "__topic__": ("string", None),
        "__source__": ("string", None),
        "event_id": ("string", None),
        "ts": ("timestamp", "millis"),
        "price": ("double", None),
        "clicks": ("string", None),
        "city": ("string", None),
    }
    assert dag_ids(dags) == {f"clicks_{role}" for role in ROLES}
    assert not ledger_connection.exists()
    for said in ("event_id", "bigint but for 7 values", "First batch of clicks", "7 log groups, by the sample about "):
        assert said in shown.out
    assert "slshudi doctor clicks" in shown.out and "airflow dags unpause clicks_tail" in shown.out
    assert "70 logs" in shown.err and "shard 0" in shown.err
    # Other users' processes read the files, too.
    assert (dags / "clicks_dags.py").stat().st_mode == (tmp_path / "dags" / "pipelines" / "clicks.yaml").stat().st_mode


def test_a_script_reads_json_and_gets_the_plan_that_plan_shows(
    filled: Callable[..., str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    logstore = filled([log(number) for number in range(30)], shards=1)
    assert init(*given(logstore, tmp_path), "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["pipeline"], told["logs"]) == ("clicks", 30)
    assert [Path(told[field]).name for field in ("file", "dag_file")] == ["clicks.yaml", "clicks_dags.py"]
    assert cli.main(["plan", "clicks", "--json"]) == 0
    planned = json.loads(capsys.readouterr().out)
    assert told["plan"] == planned["ranges"] and planned["ranges"][0]["end"] - planned["ranges"][0]["begin"] == 3


@pytest.mark.parametrize("taken", ["pipelines/clicks.yaml", "team/pipelines/clicks.yml", "clicks_dags.py"])
def test_nothing_is_overwritten_and_nothing_is_written_beside_it(
    filled: Callable[..., str], dags: Path, tmp_path: Path, taken: str, capsys: pytest.CaptureFixture[str]
) -> None:
    logstore = filled([log(1)])
    (dags / taken).parent.mkdir(parents=True)
    (dags / taken).write_text("mine")
    before = left(dags)
    assert init(*given(logstore, tmp_path)) == 1
    assert str(dags / taken) in capsys.readouterr().err
    assert left(dags) == before and (dags / taken).read_text() == "mine"


@pytest.mark.parametrize("missing", ["--project", "--logstore", "--path"])
def test_without_a_terminal_an_error_names_the_option_that_is_missing(
    filled: Callable[..., str], dags: Path, tmp_path: Path, missing: str, capsys: pytest.CaptureFixture[str]
) -> None:
    options = given(filled([log(1)]), tmp_path)
    at = options.index(missing)
    assert init(*options[:at], *options[at + 2 :]) == 1
    assert f"slshudi: {missing} is missing" in capsys.readouterr().err
    assert left(dags) == []


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("--path", "/lake/clicks", "expected a URI like file:///lake/events"),
        ("--start", "yesterday", "expected begin, end, or a time with its zone"),
        ("--start", "2026-01-31T08:00:00", "expected begin, end, or a time with its zone"),
        (
            "--partition",
            "price",
            "expected a column of type timestamp, string, int, bigint, date: source, log_time, topic, city, ",
        ),
        ("--key", "nothing", "expected a column of type string, int, bigint"),
        ("--buckets", "4", "--buckets is for --key"),
        ("--folder", "/no/such/folder", "there is no such folder"),
        ("--engines", "trino, athena", "expected some of spark, spark-hudi-1.0, "),
        ("--engines", "pyiceberg", "Airflow has no connection 'slshudi_iceberg'"),
        ("--timezone", "Shanghai", "--timezone: 'Shanghai': "),
        ("--alerts", "smtp:ada", "expected smtp: and mail addresses"),
        ("--alerts", "smtp:{{7*7}}@shop.example", "expected smtp: and mail addresses"),
        ("--alerts", "smtp", "expected smtp:ADDRESS, slack, apprise"),
        ("--catalog", "lake", "--catalog is for --engines that need Iceberg"),
        ("--connection", "sls_other", "Airflow has no connection 'sls_other'"),
    ],
)
def test_a_wrong_option_says_what_is_expected(
    filled: Callable[..., str],
    dags: Path,
    tmp_path: Path,
    option: str,
    value: str,
    said: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert init(*given(filled([log(1)]), tmp_path), option, value) == 1
    assert said in capsys.readouterr().err
    assert left(dags) == []


def test_the_engines_that_will_query_choose_the_version_and_the_mirrors(
    filled: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = given(filled([log(1)]), tmp_path)
    assert init(*options, "--engines", "spark-hudi-1.0,daft") == 0
    made = settings.pipeline("clicks")
    assert made.table.version == 8 and made.mirror is not None and made.mirror.iceberg is None
    extra = {"type": "sql", "name": "lake"}
    monkeypatch.setenv(
        "AIRFLOW_CONN_LAKE", connection("slshudi_iceberg", host=f"sqlite:///{tmp_path}/c.db", extra=extra)
    )
    assert (
        init(*options[:-1], f"file://{tmp_path}/lake/views", "--engines", "trino,pyiceberg,duckdb", name="views") == 0
    )
    made = settings.pipeline("views")
    assert made.table.version is None and made.mirror is not None and made.mirror.delta is None
    assert made.mirror.iceberg is not None
    assert (made.mirror.iceberg.catalog, made.mirror.iceberg.table) == ("lake", "lake.views")


@pytest.mark.parametrize("name", ["", "a b", "../x", "x.yaml", "..", "x" * 101])
def test_a_name_is_one_of_a_pipeline(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert init(name=name) == 1
    assert "is no name of a pipeline" in capsys.readouterr().err


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], int]]:
    """A terminal of one's own as standard input; types lines into it."""
    master, slave = os.openpty()
    with os.fdopen(slave, encoding="utf-8") as reader:
        monkeypatch.setattr(sys, "stdin", reader)
        yield lambda text: os.write(master, text.encode())
    os.close(master)


def test_on_a_terminal_it_asks_for_what_cannot_be_known_and_again_after_a_wrong_answer(
    filled: Callable[..., str],
    dags: Path,
    tmp_path: Path,
    terminal: Callable[[str], int],
    capsys: pytest.CaptureFixture[str],
) -> None:
    logstore = filled([log(number) for number in range(30)])
    answers = [PROJECT, "no-such-logstore", logstore, "/lake", f"file://{tmp_path}/lake"]
    answers += ["", "ts", "Asia/Shanghai", "trino", "end", "pigeon", ""]
    terminal("".join(f"{line}\n" for line in answers))
    assert init() == 0
    shown = capsys.readouterr()
    pipeline = settings.pipeline("clicks")
    assert (pipeline.source.logstore, pipeline.source.start) == (logstore, "end")
    assert pipeline.table.path == f"file://{tmp_path}/lake" and pipeline.table.upsert is None
    partition = pipeline.table.partition
    assert isinstance(partition, EventTimePartition) and (partition.column, partition.timezone) == (
        "ts",
        "Asia/Shanghai",
    )
    assert (pipeline.table.version, pipeline.mirror) == (6, None)
    for said in ("the project has no such logstore", "expected a URI", "expected smtp:ADDRESS, slack, apprise"):
        assert said in shown.err
    assert "connection sls_default: the only one" in shown.err
    assert "begins where the shards end" in shown.out


def test_a_logstore_of_the_pipelines_name_is_meant_and_the_days_are_airflows(
    client: LogClient,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    logstore = make_logstore(client, f"init-{uuid4().hex[:12]}", 1)
    monkeypatch.setattr("airflow.settings.TIMEZONE", ZonedAirflow("Asia/Shanghai"))
    options = ["--project", PROJECT, "--path", f"file://{tmp_path}/lake/clicks"]
    assert init(*options, name=logstore.replace("-", "_").upper()) == 0
    (file,) = (tmp_path / "dags" / "pipelines").iterdir()
    pipeline = load_pipeline(file)
    assert pipeline.source.logstore == logstore
    assert (
        isinstance(pipeline.table.partition, EventTimePartition)
        and pipeline.table.partition.timezone == "Asia/Shanghai"
    )
    assert "the ledger is new: the first run of a pipeline makes its tables" in capsys.readouterr().err


def test_a_new_pipeline_has_a_watch_that_tells_or_says_that_nobody_is_told(
    filled: Callable[..., str], dags: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = given(filled([log(1)]), tmp_path)
    assert init(*options) == 0
    assert "Airflow tells no person of failures" in capsys.readouterr().out
    told = ["--alerts", "smtp:ada@shop.example,o'neil@shop.example"]
    assert init(*options[:-1], f"file://{tmp_path}/lake/views", *told, name="views") == 0
    shown = capsys.readouterr().out
    assert "tells no person" not in shown and "airflow dags unpause views_watch" in shown
    assert "airflow connections add smtp_default" in shown, "Airflow has none"
    bag = BundleDagBag(str(dags), bundle_path=dags, bundle_name="dags")
    assert not bag.import_errors
    watch: Any = bag.dags["views_watch"].tasks[0]
    (notifier,) = watch.on_failure_callback
    assert notifier.to == ["ada@shop.example", "o'neil@shop.example"]
    tagged = [(tag, dag.dag_id) for dag in bag.dags.values() for tag in dag.tags]
    assert alerts_by_pipeline(tagged, ()) == {"clicks": False, "views": True}
    assert alerts_by_pipeline(tagged, {"views_watch"})["views"] is False, "a paused watch tells nobody"


@pytest.mark.parametrize("kind", ["slack", "apprise"])
def test_a_notifier_whose_provider_is_not_installed_is_refused_with_its_name(
    filled: Callable[..., str], dags: Path, tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if find_spec(f"airflow.providers.{kind}") is not None:
        pytest.skip("it is installed here")
    assert init(*given(filled([log(1)]), tmp_path), "--alerts", kind) == 1
    assert f"pip install apache-airflow-providers-{kind}" in capsys.readouterr().err
    assert left(dags) == []


def test_what_the_connection_names_and_where_other_tables_lie_is_offered(
    filled: Callable[..., str],
    sls: LocalSls,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    logstore, of = filled([log(1)]), sls.connection()
    fields = {"host": of.endpoint, "login": of.access_key_id, "password": of.access_key_secret.reveal()}
    monkeypatch.setenv(SLS, connection("sls", **fields, extra={"project": PROJECT, "logstore": logstore}))
    assert init("--path", f"file://{tmp_path}/lake/clicks") == 0
    assert init(name="views") == 0
    assert settings.pipeline("views").table.path == f"file://{tmp_path}/lake/views"
    # Several connections, none of them the usual one: somebody has to say which.
    for name in ("SLS_EAST", "SLS_WEST"):
        monkeypatch.setenv(f"AIRFLOW_CONN_{name}", os.environ[SLS])
    monkeypatch.delenv(SLS)
    assert init(name="third") == 1
    assert "--connection is missing (Connection (sls_east, sls_west))" in capsys.readouterr().err
    assert init("--connection", "sls_west", name="third") == 0
    assert settings.pipeline("third").source.connection == "sls_west"


def test_an_end_of_input_writes_nothing(
    client: LogClient, dags: Path, terminal: Callable[[str], int], capsys: pytest.CaptureFixture[str]
) -> None:
    terminal("\x04")
    assert init() == 1
    assert "--project was not answered; nothing was written" in capsys.readouterr().err
    assert left(dags) == []


def test_a_refused_connection_is_told_after_one_try(
    dags: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with closed_port() as port:
        monkeypatch.setenv(SLS, connection("sls", host=f"127.0.0.1:{port}", login="id", password="key"))
        settings.dag_folders()  # imports Airflow's part of it
        started = time.monotonic()
        assert init(*given("none", tmp_path)) == 1
        assert time.monotonic() - started < 2
    told = capsys.readouterr().err
    assert "Unreachable" in told and "check the endpoint" in told and "trying again" not in told
    assert left(dags) == []


def test_the_first_line_is_shown_while_airflow_is_not_yet_imported() -> None:
    code = (
        "import sys; from airflow_provider_slshudi import cli\n"
        "class Noted:\n"
        "    def write(self, text): sys.__stdout__.write(f'{text!r} {\"airflow\" in sys.modules}\\n')\n"
        "    def flush(self): pass\n"
        "sys.stderr = Noted()\n"
        "cli.main(['init', 'clicks'])\n"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, stdin=subprocess.DEVNULL)
    assert done.stdout.splitlines()[0].endswith('settings and connections" False'), done.stdout + done.stderr


def test_an_empty_logstore_gives_the_least_file(
    filled: Callable[..., str], dags: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert init(*given(filled([]), tmp_path)) == 0
    shown = capsys.readouterr()
    assert "holds no logs" in shown.err and "First batch of clicks: none" in shown.out
    pipeline = settings.pipeline("clicks")
    assert columns(pipeline) == {"__time__": ("timestamp", "seconds")} and pipeline.rest_column == "rest"
    assert len(dag_ids(dags)) == len(ROLES)


HOSTILE = [
    "a: b # c",
    "- x",
    "x\n  - {name: evil}\n",
    "'\"",
    "\u202e\u2028\ufeff\x85",
    "\x1b[31mred",
    "城市",
    "{{ env }}",
    "rest",
    "event_date",
    "log_time",
    "true",
    "1e3",
    "_hoodie_record_key",
    "_tmp_metadata_row_index",
    "k" * 3_000,
    "😀",
]


def test_odd_keys_and_values_neither_break_the_file_nor_reach_the_terminal(
    filled: Callable[..., str], dags: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    odd = [(key, f"{key}!") for key in HOSTILE]
    unnamed = [("", "x"), ("__rest__", "x"), ("__time__", "x")]
    rare = [("rare\n  - {name: evil}", "[" * 5_000 + "]" * 5_000)]
    logs = [[*odd, *unnamed, *(rare if number == 0 else [])] for number in range(150)]
    assert init(*given(filled(logs), tmp_path)) == 0
    shown = capsys.readouterr()
    pipeline = settings.pipeline("clicks")
    assert {column.source_key for column in pipeline.columns} == {*HOSTILE, "__time__", "__topic__", "__source__"}
    assert pipeline.rest_column == "rest_2"
    assert pipeline.table.partition is not None and pipeline.table.partition.name == "event_date_2"
    text = (dags / "pipelines" / "clicks.yaml").read_text(encoding="utf-8")
    assert all(line.isprintable() for line in text.splitlines()) and "key: 城市" in text
    assert '  # - {name: rare_name_evil_, key: "rare\\n  - {name: evil}"} # in 0.7% of the logs' in text
    assert "3 keys have none" in text
    assert "\x1b" not in shown.out and "\u202e" not in shown.out and "城市" in shown.out
    assert len(dag_ids(dags)) == len(ROLES)


def test_a_name_or_table_that_another_pipeline_wrote_is_refused_before_anything_is_written(
    filled: Callable[..., str],
    dags: Path,
    tmp_path: Path,
    ledger_connection: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    options = given(filled([log(1)]), tmp_path)
    with ledger_in(ledger_connection) as ledger:
        ledger.register("older", "sls://shop/views", f"file://{tmp_path}/lake/clicks")
        begun = ledger.begin("older", Kind.TAIL, [Range(0, 1, 2)], "tail", "run-1")
        ledger.opened(begun.id, begun.token, "20260131080000000")
        assert ledger.has_written("older")
    assert init(*options) == 1
    assert "belongs to pipeline older" in capsys.readouterr().err
    assert left(dags) == []
    assert init(*options[:-1], f"file://{tmp_path}/lake/other") == 0
    with ledger_in(ledger_connection) as ledger:
        assert [known.name for known in ledger.pipelines()] == ["older"]


def test_a_first_plan_that_is_not_known_is_said_and_the_files_stay(
    filled: Callable[..., str], dags: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = tmp_path / "lake" / "clicks"
    (table / ".hoodie" / "timeline").mkdir(parents=True)
    # There `clicks` is a bigint.
    properties = "hoodie.table.create.schema=" + avro_schema(ad_events(table)).replace(":", "\\:")
    (table / ".hoodie" / "hoodie.properties").write_text(properties)
    assert init(*given(filled([log(0)]), tmp_path)) == 1
    shown = capsys.readouterr()
    assert "both files are written" in shown.err and "slshudi plan clicks" in shown.err
    assert "slshudi doctor clicks" in shown.out
    assert left(dags) == ["clicks_dags.py", "pipelines", "pipelines/clicks.yaml"]


def test_a_folder_that_airflow_does_not_look_into_is_named(
    filled: Callable[..., str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    assert init(*given(filled([log(1)]), tmp_path), "--folder", checkout) == 0
    shown = capsys.readouterr().out
    assert f"does not look into {checkout}" in shown and f"doctor {checkout}/pipelines/clicks.yaml" in shown
    assert len(dag_ids(checkout)) == len(ROLES)


def test_a_pipelines_folder_gets_the_file(
    filled: Callable[..., str], dags: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__SLSHUDI__PIPELINES_FOLDER", str(tmp_path / "all"))
    assert init(*given(filled([log(1)]), tmp_path)) == 0
    assert (left(dags), left(tmp_path / "all")) == (["clicks_dags.py"], ["clicks.yaml"])
    assert len(dag_ids(dags)) == len(ROLES)


def test_several_folders_of_dags_need_one_to_be_named(
    filled: Callable[..., str],
    dags: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    configure(monkeypatch, dags, tmp_path / "others")
    dags.mkdir()
    options = given(filled([log(1)]), tmp_path)
    assert init(*options) == 1
    assert f"--folder is missing (Folder of the DAG file; Airflow looks into {dags}, " in capsys.readouterr().err
    assert init(*options, "--folder", dags) == 0


def batches(made: Pipeline, sls: LocalSls, client: LogClient, ledger: Path, spark: SparkSession) -> Iterator[Any]:
    """Whole batches of a pipeline; each with the scenario that ran it."""
    service = LogService(sls.connection(), made.source.project, made.source.logstore)
    with ledger_in(ledger) as opened:
        work = Work(made, opened, SessionLauncher(spark), lambda: service, Run("tail", "run-0"))
        scenario, number = Scenario(work, client), 0
        while True:
            number += 1
            yield scenario, scenario.batch(f"run-{number}")


@pytest.mark.long
def test_what_it_writes_brings_every_log_once(
    spark: SparkSession, filled: Callable[..., str], sls: LocalSls, client: LogClient, tmp_path: Path, dags: Path
) -> None:
    logstore = filled([[*log(number), ("odd: #key", f"v{number}")] for number in range(500)])
    assert init(*given(logstore, tmp_path), "--partition", "ts") == 0
    made = settings.pipeline("clicks")
    running = batches(made, sls, client, tmp_path / "real.db", spark)
    scenario, first = next(running)
    assert (first.state, first.rows) == (State.COMMITTED, 500)
    scenario.put(100, first=500)
    _, second = next(running)
    assert second.rows == 100
    table = spark.read.format("hudi").load(scenario.work.storage.full(""))
    assert table.count() == table.select("_hoodie_record_key").distinct().count() == 600
    assert {row["event_id"] for row in table.select("event_id").collect()} == {f"event-{n}" for n in range(600)}
    # Each of the proposed types took each value.
    assert table.where("ts is null or price is null or clicks is null or event_date is null").count() == 0
    assert table.where("odd_key is not null").count() == 500
    assert table.agg({"price": "sum"}).collect()[0][0] == sum(n / 4 for n in range(600))
    assert verify(scenario.work).ok
    running.close()  # type: ignore[attr-defined]
    assert dag_ids(dags) == {f"clicks_{role}" for role in ROLES}


@pytest.mark.long
def test_what_it_writes_for_upserts_keeps_the_newest_row_of_each_key(
    spark: SparkSession, filled: Callable[..., str], sls: LocalSls, client: LogClient, tmp_path: Path, dags: Path
) -> None:
    logs = [[("shop", f"s{number % 4}"), ("id", str(number % 50)), ("stock", str(number))] for number in range(300)]
    logstore = filled(logs, shards=1)
    assert init(*given(logstore, tmp_path), "--key", "shop,id", "--buckets", "2") == 0
    made = settings.pipeline("clicks")
    assert made.table.upsert is not None and made.table.partition is None
    assert made.table.upsert.needed == ("shop", "id", "log_time")
    running = batches(made, sls, client, tmp_path / "real.db", spark)
    scenario, first = next(running)
    assert first.state is State.COMMITTED
    newest = {(f"s{number % 4}", number % 50): number for number in range(300)}
    rows = spark.read.format("hudi").load(scenario.work.storage.full("")).select("shop", "id", "stock").collect()
    assert len(rows) == len(newest) == 100
    assert {(row["shop"], row["id"]): row["stock"] for row in rows} == newest
    running.close()  # type: ignore[attr-defined]
    # `verify` refuses upserts.
    assert dag_ids(dags) == {f"clicks_{role}" for role in ROLES}
