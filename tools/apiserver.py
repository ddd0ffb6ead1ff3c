"""Builds Kubernetes' API server and its etcd into `.venv`, for the tests: Go programs that no registry has ready.

Kubernetes' parts are modules of their own, which its go.mod looks for in folders that a module from Go's proxy does not
have. So a module of ours names their versions. It takes ten minutes of CPU, and 4 GB of disk for what is compiled.
Debian's etcd is too old: without its word on how far it is, an API server of today gives no events.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

VERSION = "1.34.4"
ETCD = "3.6.5"
"""The one that goes with this Kubernetes."""
PARTS = f"v0.{VERSION.partition('.')[2]}"
FOLDER = Path(sys.executable).parent
MAIN = "k8s.io/kubernetes/cmd/kube-apiserver"


def main() -> None:
    """Builds both, unless they are there."""
    build("etcd", ETCD, "go.etcd.io/etcd/server/v3", f"module etcd\nrequire go.etcd.io/etcd/server/v3 v{ETCD}\n")
    asked = ["go", "mod", "download", "-json", f"k8s.io/kubernetes@v{VERSION}"]
    found = json.loads(subprocess.run(asked, check=True, capture_output=True, text=True).stdout)
    build("kube-apiserver", VERSION, MAIN, module(Path(found["GoMod"]).read_text(encoding="utf-8")))


def build(name: str, version: str, package: str, asked: str) -> None:
    """Builds a program of a package, with a go.mod that asks for it."""
    target = FOLDER / name
    if target.exists() and version in subprocess.run([target, "--version"], capture_output=True, text=True).stdout:
        return
    with tempfile.TemporaryDirectory(prefix="slshudi-apiserver-") as folder:
        Path(folder, "go.mod").write_text(asked, encoding="utf-8")
        flags = f"-X k8s.io/component-base/version.gitVersion=v{version} -s -w"
        print(f"apiserver: building {name} {version}", flush=True)
        subprocess.run(["go", "build", "-mod=mod", "-ldflags", flags, "-o", target, package], cwd=folder, check=True)


def module(given: str) -> str:
    """A go.mod with the Go of Kubernetes' own, and the parts that this one has in folders."""
    parts = re.findall(r"^\t(\S+) => \./staging/", given, re.MULTILINE)
    kept = re.findall(r"^(?:go|godebug) .*$", given, re.MULTILINE)
    replaced = [f"replace {part} => {part} {PARTS}" for part in parts]
    return "\n".join(["module apiserver", *kept, f"require k8s.io/kubernetes v{VERSION}", *replaced, ""])


if __name__ == "__main__":
    main()
