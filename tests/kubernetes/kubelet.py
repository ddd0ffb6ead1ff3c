"""A kubelet that runs a pod's container as a child of this process, as Spark's image would run it."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from airflow_provider_slshudi.spark import packages
from tests.kubernetes.access import Access, Json
from tests.waiting import until

HOST = "127.0.0.1"
"""Where all pods are."""
_BEGAN = "2026-01-01T00:00:00Z"


class Kubelet:
    """Runs the pods of a cluster, each in a folder of its own.

    Args:
        access: how it asks.
        folder: where the pods' folders are made.
    """

    def __init__(self, access: Access, folder: Path) -> None:
        self._access, self._folder = access, folder
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._over = False
        self._lock = threading.Lock()
        self.seen: list[Json] = []
        """The pods and their configuration, as they were made."""

    @contextmanager
    def running(self) -> Iterator[Kubelet]:
        """Works during the block; ends all pods after it."""
        threading.Thread(target=self._watch, daemon=True).start()
        try:
            yield self
        finally:
            with self._lock:
                self._over = True
                for name in list(self._children):
                    self._kill(name)

    def said(self) -> str:
        """The last that each pod printed."""
        logs = sorted(self._folder.glob("*/log"))
        return "\n".join(f"{path.parent.name}: {path.read_text()[-4000:]}" for path in logs)

    def _watch(self) -> None:
        known = set[str]()
        while not self._over:
            with suppress(OSError):
                for event in self._access.events("pods"):
                    name = event["object"]["metadata"]["name"]
                    if event["type"] == "DELETED":
                        with self._lock:
                            self._kill(name)
                    elif name not in known:
                        known.add(name)
                        threading.Thread(target=self._run, args=(name, event["object"]), daemon=True).start()

    def _kill(self, name: str) -> None:
        child = self._children.pop(name, None)
        if child is not None and child.poll() is None:
            child.kill()

    def _run(self, name: str, pod: Json) -> None:
        """A pod's life."""
        self.seen.append(pod)
        folder = self._folder / name
        folder.mkdir()
        given = self._volumes(pod, folder)
        container = pod["spec"]["containers"][0]
        variables = {item["name"]: item.get("value", HOST) for item in container.get("env", [])}
        home = packages.spark_home()
        variables |= {
            "JAVA_HOME": str(packages.java_home()),
            "SPARK_HOME": str(home),
            "PATH": f"{home}/bin:/usr/bin:/bin",
            "SPARK_LOCAL_DIRS": str(folder),
            "SPARK_CONF_DIR": str(folder),
        }
        role, *arguments = container["args"]
        command = self._driver(arguments, given, folder) if role == "driver" else _executor(variables, name)
        with self._lock, (folder / "log").open("wb") as log:
            if self._over:
                return
            nothing = subprocess.DEVNULL
            child = subprocess.Popen(
                command, cwd=folder, env=variables, stdin=nothing, stdout=log, stderr=log, start_new_session=True
            )
            self._children[name] = child
        self._tell(name, container, "Running", {"running": {"startedAt": _BEGAN}})
        code = child.wait()
        reason, phase = ("Completed", "Succeeded") if code == 0 else ("Error", "Failed")
        ended = {"exitCode": abs(code), "reason": reason, "startedAt": _BEGAN, "finishedAt": _BEGAN}
        self._tell(name, container, phase, {"terminated": ended})

    def _volumes(self, pod: Json, folder: Path) -> dict[str, str]:
        """Writes what a pod mounts; gives the settings of a driver that finds its account there."""
        given: dict[str, str] = {}
        for volume in pod["spec"].get("volumes", []):
            if "configMap" in volume:
                place = f"configmaps/{volume['configMap']['name']}"
                # Spark makes it after the pod, which belongs to none.
                found = until(f"there is {place}", lambda place=place: self._access.ask("GET", place))  # type: ignore[misc]
                assert found is not None
                self.seen.append(found)
                for key, text in found["data"].items():
                    (folder / key).write_text(text)
            elif "projected" in volume:
                account = f"serviceaccounts/{pod['spec']['serviceAccountName']}/token"
                answer = self._access.ask("POST", account, {"spec": {}})
                assert answer is not None, account
                token = folder / "token"
                with os.fdopen(os.open(token, os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
                    file.write(answer["status"]["token"])
                mounted = "spark.kubernetes.authenticate.driver.mounted"
                given = {
                    f"{mounted}.oauthTokenFile": str(token),
                    f"{mounted}.caCertFile": str(self._access.authority),
                }
        return given

    def _driver(self, arguments: list[str], given: dict[str, str], folder: Path) -> list[str]:
        command = [str(packages.spark_home() / "bin" / "spark-submit"), "--deploy-mode", "client"]
        # What the names of Kubernetes' own services lead to.
        names = {
            "spark.driver.host": HOST,
            "spark.driver.bindAddress": HOST,
            "spark.kubernetes.driver.master": self._access.address,
        }
        for key, value in {**names, **given}.items():
            command += ["--conf", f"{key}={value}"]
        return command + [argument.replace("/opt/spark/conf/", f"{folder}/") for argument in arguments]

    def _tell(self, name: str, container: Json, phase: str, state: Json) -> None:
        """Tells whoever watches how a pod is, unless it was deleted."""
        image = {"image": container["image"], "imageID": container["image"]}
        of_container = {"name": container["name"], "state": state, "ready": "running" in state, "restartCount": 0}
        status = {
            "phase": phase,
            "podIP": HOST,
            "podIPs": [{"ip": HOST}],
            "startTime": _BEGAN,
            "containerStatuses": [of_container | image],
        }
        self._access.ask("PATCH", f"pods/{name}/status", {"status": status})


def _executor(variables: dict[str, str], name: str) -> list[str]:
    options = [value for key, value in sorted(variables.items()) if key.startswith("SPARK_JAVA_OPT_")]
    memory, classes = variables["SPARK_EXECUTOR_MEMORY"], f"{variables['SPARK_HOME']}/jars/*"
    command = [f"{variables['JAVA_HOME']}/bin/java", *options, f"-Xmx{memory}", "-cp", classes]
    command += ["org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"]
    for option, value in {
        "driver-url": variables["SPARK_DRIVER_URL"],
        "executor-id": variables["SPARK_EXECUTOR_ID"],
        "cores": variables["SPARK_EXECUTOR_CORES"],
        "app-id": variables["SPARK_APPLICATION_ID"],
        "hostname": HOST,
        "resourceProfileId": variables["SPARK_RESOURCE_PROFILE_ID"],
        "podName": name,
    }.items():
        command += [f"--{option}", value]
    return command
