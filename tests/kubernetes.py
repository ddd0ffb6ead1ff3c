"""The part of Kubernetes that Spark speaks to, as processes: an API server that keeps objects in memory, and a kubelet
that runs a pod as a child of this process, as Spark's image would.

Real: Spark's Kubernetes client, what it asks for, driver and executors. Not real: containers, their network and names
(all pods are at 127.0.0.1), authorization.
"""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from airflow_provider_slshudi.spark import packages

_PATH = re.compile(r"/api/v1/namespaces/default/(\w+)(?:/([\w.-]+))?")
_HOST = "127.0.0.1"

Json = dict[str, Any]


@dataclass
class Kubernetes:
    """A running cluster: its address, the folder of its pods, and all that it was asked to make."""

    address: str = ""
    folder: Path = Path()
    asked: list[Json] = field(default_factory=list)

    def pods(self, role: str) -> list[Json]:
        """The pods of a role, `driver` or `executor`, as they were asked for."""
        made = [item for item in self.asked if item["kind"] == "Pod"]
        return [item for item in made if item["metadata"]["labels"]["spark-role"] == role]

    def said(self) -> str:
        """The last that each pod printed."""
        logs = sorted(self.folder.glob("*/log"))
        return "\n".join(f"{path.parent.name}: {path.read_text()[-4000:]}" for path in logs)


@contextmanager
def kubernetes() -> Iterator[Kubernetes]:
    """A cluster with room for all pods."""
    made = Kubernetes()
    with tempfile.TemporaryDirectory(prefix="slshudi-kubernetes-") as folder:
        made.folder = Path(folder)
        api = _Api(made)
        made.address = f"http://{_HOST}:{api.server_port}"
        thread = threading.Thread(target=api.serve_forever, daemon=True)
        thread.start()
        try:
            yield made
        finally:
            api.end()
            api.shutdown()
            api.server_close()


class _Api(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, made: Kubernetes) -> None:
        super().__init__((_HOST, 0), _Handler)
        self.made = made
        self.objects: dict[tuple[str, str], Json] = {}
        self.children: dict[str, subprocess.Popen[bytes]] = {}
        self.changed = threading.Condition()
        self.version = 0

    def keep(self, kind: str, item: Json) -> Json:
        """Makes or changes an object; a new pod begins to run."""
        with self.changed:
            name = item["metadata"]["name"]
            new = (kind, name) not in self.objects
            before = self.objects.get((kind, name), {})
            self.version += 1
            kept = {**before, **item, "metadata": {**before.get("metadata", {}), **item["metadata"]}}
            kept["metadata"] |= {"uid": f"uid-{name}", "namespace": "default", "resourceVersion": str(self.version)}
            self.objects[kind, name] = kept
            self.made.asked.append(item)
            if kind == "pods" and new:
                kept["status"] = {"phase": "Pending"}
            self.changed.notify_all()
        if kind == "pods" and new:
            threading.Thread(target=self._run, args=(name,), daemon=True).start()
        return kept

    def status(self, name: str, phase: str, code: int | None = None) -> None:
        """Tells whoever watches how a pod is."""
        with self.changed:
            pod = self.objects.get(("pods", name))
            if pod is None:
                return
            self.version += 1
            pod["metadata"]["resourceVersion"] = str(self.version)
            state: Json = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
            if code is not None:
                state = {"terminated": {"exitCode": code, "reason": "Completed" if code == 0 else "Error"}}
            container = pod["spec"]["containers"][0]["name"]
            of_container = {"name": container, "state": state, "ready": code is None, "restartCount": 0}
            pod["status"] = {
                "phase": phase,
                "podIP": _HOST,
                "startTime": "2026-01-01T00:00:00Z",
                "containerStatuses": [of_container | {"image": "any", "imageID": "any"}],
            }
            self.changed.notify_all()

    def delete(self, kind: str, name: str) -> None:
        """Deletes an object; a pod's process is killed."""
        with self.changed:
            self.objects.pop((kind, name), None)
            child = self.children.pop(name, None)
            self.changed.notify_all()
        if child is not None and child.poll() is None:
            child.kill()

    def end(self) -> None:
        """Ends all pods."""
        for name in list(self.children):
            self.delete("pods", name)

    def _run(self, name: str) -> None:
        """A pod's life: what Spark's image does with its arguments, in a folder of its own."""
        pod = self.objects["pods", name]
        folder = self.made.folder / name
        folder.mkdir()
        container = pod["spec"]["containers"][0]
        variables = {item["name"]: item.get("value", _HOST) for item in container.get("env", [])}
        home = packages.spark_home()
        variables |= {
            "JAVA_HOME": str(packages.java_home()),
            "SPARK_HOME": str(home),
            "PATH": f"{home}/bin:/usr/bin:/bin",
            "SPARK_LOCAL_DIRS": str(folder),
            "SPARK_CONF_DIR": str(folder),
        }
        for item in pod["spec"].get("volumes", []):
            if "configMap" in item:
                place = "configmaps", item["configMap"]["name"]
                with self.changed:
                    # Spark makes it after the pod, which belongs to none.
                    self.changed.wait_for(partial(self.objects.__contains__, place))
                    found = self.objects[place]["data"]
                for key, text in found.items():
                    (folder / key).write_text(text)
        role, *arguments = container["args"]
        if role == "driver":
            command = [str(home / "bin" / "spark-submit"), "--deploy-mode", "client"]
            # What the names of Kubernetes' own services lead to.
            for key, value in {
                "driver.host": _HOST,
                "driver.bindAddress": _HOST,
                "kubernetes.driver.master": self.made.address,
            }.items():
                command += ["--conf", f"spark.{key}={value}"]
            command += [argument.replace("/opt/spark/conf/", f"{folder}/") for argument in arguments]
        else:
            options = [value for name, value in sorted(variables.items()) if name.startswith("SPARK_JAVA_OPT_")]
            memory = variables["SPARK_EXECUTOR_MEMORY"]
            command = [f"{variables['JAVA_HOME']}/bin/java", *options, f"-Xmx{memory}", "-cp", f"{home}/jars/*"]
            command += ["org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"]
            for option, value in {
                "driver-url": variables["SPARK_DRIVER_URL"],
                "executor-id": variables["SPARK_EXECUTOR_ID"],
                "cores": variables["SPARK_EXECUTOR_CORES"],
                "app-id": variables["SPARK_APPLICATION_ID"],
                "hostname": _HOST,
                "resourceProfileId": variables["SPARK_RESOURCE_PROFILE_ID"],
                "podName": name,
            }.items():
                command += [f"--{option}", value]
        with (folder / "log").open("wb") as log:
            nothing = subprocess.DEVNULL
            child = subprocess.Popen(
                command, cwd=folder, env=variables, stdin=nothing, stdout=log, stderr=log, start_new_session=True
            )
        self.children[name] = child
        self.status(name, "Running")
        code = child.wait()
        self.status(name, "Succeeded" if code == 0 else "Failed", abs(code))


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Api

    def log_message(self, *_: Any) -> None:
        """Says nothing."""

    def do_POST(self) -> None:
        kind, _ = self._place()
        self._answer(201, self.server.keep(kind, self._body()))

    def do_PATCH(self) -> None:
        kind, name = self._place()
        body = self._body()
        if isinstance(body, list):
            body = {}
        body["metadata"] = {**body.get("metadata", {}), "name": name}
        self._answer(200, self.server.keep(kind, body))

    do_PUT = do_PATCH

    def do_DELETE(self) -> None:
        kind, name = self._place()
        self._body()
        for found in [name] if name else [item["metadata"]["name"] for item in self._listed(kind)]:
            self.server.delete(kind, found)
        self._answer(200, {"kind": "Status", "apiVersion": "v1", "status": "Success"})

    def do_GET(self) -> None:
        kind, name = self._place()
        if "watch" in self._asked():
            self._watch(kind)
        elif name:
            found = self.server.objects.get((kind, name))
            if found is None:
                self._answer(404, {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 404})
            else:
                self._answer(200, found)
        else:
            listed = {"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": str(self.server.version)}}
            self._answer(200, listed | {"items": self._listed(kind)})

    def _asked(self) -> dict[str, list[str]]:
        return parse_qs(urlsplit(self.path).query)

    def _place(self) -> tuple[str, str]:
        found = _PATH.fullmatch(urlsplit(self.path).path)
        assert found is not None, self.path
        return found[1], found[2] or ""

    def _listed(self, kind: str) -> list[Json]:
        asked = self._asked()
        labels = dict(item.split("=", 1) for item in ",".join(asked.get("labelSelector", [])).split(",") if "=" in item)
        names = [text.partition("metadata.name=")[2] for text in asked.get("fieldSelector", [])]
        with self.server.changed:
            return [
                item
                for (of, name), item in self.server.objects.items()
                if of == kind
                and labels.items() <= item["metadata"].get("labels", {}).items()
                and (not names or name in names)
            ]

    def _watch(self, kind: str) -> None:
        """Events of objects, as lines of one answer without an end."""
        if "upgrade" in self.headers.get("Connection", "").lower():
            # As a proxy without web sockets: the client asks again without.
            self._answer(200, {})
            return
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        told: dict[str, str] = {}
        try:
            while True:
                for item in self._listed(kind):
                    name, version = item["metadata"]["name"], item["metadata"]["resourceVersion"]
                    if told.get(name) != version:
                        event = {"type": "MODIFIED" if name in told else "ADDED", "object": item}
                        told[name] = version
                        line = json.dumps(event).encode() + b"\n"
                        self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
                        self.wfile.flush()
                with self.server.changed:
                    self.server.changed.wait(1.0)
        except OSError:
            self.close_connection = True

    def _body(self) -> Any:
        content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        return json.loads(content) if content else {}

    def _answer(self, code: int, content: Json) -> None:
        text = json.dumps(content).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)
