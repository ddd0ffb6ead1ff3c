"""Builds what an index is given, into dist/: wheels and source distributions of the package and of slshudi-native.

The same commit gives the same bytes, wherever it is built and whenever. Run by `make dist`; it needs a Rust toolchain
with the targets below (`rustup target add`, which it calls where rustup is there). Zig links against the oldest C
library that a wheel's tag promises, so no container is needed: https://www.maturin.rs/distribution#use-zig
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

from setup import NATIVE, ROOT, UV_PROGRAM, cargo, index_environment, run

DIST = ROOT / "dist"
MATURIN = ("--from", "maturin==1.15.0", "--with", "ziglang==0.17.1", "maturin")
TARGETS = {
    "x86_64-unknown-linux-gnu": "manylinux2014",
    "aarch64-unknown-linux-gnu": "manylinux2014",
    "x86_64-unknown-linux-musl": "musllinux_1_2",
    "aarch64-unknown-linux-musl": "musllinux_1_2",
}
"""Rust's name of each platform that gets a wheel, and what the wheel promises of the C library there."""


def main() -> None:
    """Builds all of it, or the wheels of the targets that the arguments name, and says each file's digest."""
    found = cargo()
    if found is None:
        raise SystemExit("dist: no cargo was found that runs: install Rust (https://rustup.rs), then try again")
    targets = sys.argv[1:] or [*TARGETS]
    if unknown := set(targets) - TARGETS.keys():
        raise SystemExit(f"dist: no target {', '.join(sorted(unknown))}; there are {', '.join(TARGETS)}")
    shutil.rmtree(DIST, ignore_errors=True)
    environment = _environment(Path(found))
    rustup = shutil.which("rustup", path=environment["PATH"])
    if rustup:
        run([rustup, "target", "add", *targets], environment)
    run([UV_PROGRAM, "build", "--quiet", "--out-dir", DIST], environment)
    maturin: list[str | Path] = [UV_PROGRAM, "tool", "run", "--quiet", *MATURIN]
    common: list[str | Path] = ["--manifest-path", NATIVE / "Cargo.toml", "--out", DIST]
    for target in targets:
        kind: list[str | Path] = ["--release", "--zig", "--target", target, "--compatibility", TARGETS[target]]
        run([*maturin, "build", *kind, *common, "--target-dir", NATIVE / "target"], environment)
    run([*maturin, "sdist", *common], environment)
    for path in sorted(DIST.glob("*[lz]")):
        print(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}")


def _environment(found: Path) -> dict[str, str]:
    """Variables that keep the time and the places of the build out of what is built."""
    when = subprocess.run(["git", "log", "-1", "--format=%ct"], cwd=ROOT, capture_output=True, text=True, check=True)
    environment = index_environment()
    homes = {
        environment.get("CARGO_HOME", str(Path.home() / ".cargo")): "/cargo",
        str(ROOT): "/slshudi",
    }
    return {
        **environment,
        "PATH": os.pathsep.join([str(found.parent), environment.get("PATH", os.defpath)]),
        "SOURCE_DATE_EPOCH": when.stdout.strip(),
        "RUSTFLAGS": " ".join(f"--remap-path-prefix={place}={name}" for place, name in homes.items()),
    }


if __name__ == "__main__":
    main()
