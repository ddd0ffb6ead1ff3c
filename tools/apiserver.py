"""Builds Kubernetes' API server into `.venv`, for the tests: a Go program that no package registry has ready.

Its parts are modules of their own, which its go.mod looks for in folders that a module from Go's proxy does not have.
So a module of ours names their versions. It takes ten minutes of CPU, and 4 GB of disk for what is compiled.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

VERSION = "1.34.4"
PARTS = f"v0.{VERSION.partition('.')[2]}"
TARGET = Path(sys.executable).with_name("kube-apiserver")
MAIN = "k8s.io/kubernetes/cmd/kube-apiserver"


def main() -> None:
    """Builds it, unless it is there."""
    if TARGET.exists() and VERSION in subprocess.run([TARGET, "--version"], capture_output=True, text=True).stdout:
        return
    asked = ["go", "mod", "download", "-json", f"k8s.io/kubernetes@v{VERSION}"]
    found = json.loads(subprocess.run(asked, check=True, capture_output=True, text=True).stdout)
    given = Path(found["GoMod"]).read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory(prefix="slshudi-apiserver-") as folder:
        Path(folder, "go.mod").write_text(module(given), encoding="utf-8")
        flags = f"-X k8s.io/component-base/version.gitVersion=v{VERSION} -s -w"
        print(f"apiserver: building Kubernetes {VERSION}", flush=True)
        subprocess.run(["go", "build", "-mod=mod", "-ldflags", flags, "-o", TARGET, MAIN], cwd=folder, check=True)


def module(given: str) -> str:
    """A go.mod with the Go of Kubernetes' own, and the parts that this one has in folders."""
    parts = re.findall(r"^\t(\S+) => \./staging/", given, re.MULTILINE)
    kept = re.findall(r"^(?:go|godebug) .*$", given, re.MULTILINE)
    replaced = [f"replace {part} => {part} {PARTS}" for part in parts]
    return "\n".join(["module apiserver", *kept, f"require k8s.io/kubernetes v{VERSION}", *replaced, ""])


if __name__ == "__main__":
    main()
