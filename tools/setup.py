"""Makes `.venv` with everything in it and prepares the JVM part; a second run finds that nothing is to be done.

Run by setup.sh, with any Python 3.10-3.12 and its standard library alone. `setup.py constraints` writes
constraints.txt instead: one set of exact versions for all these Pythons, the newest within pyproject.toml's ranges.
`setup.py fits 3.10` says whether a Python of that version can have them all.
`setup.py extra topology` adds the packages of an extra to a `.venv` that is there.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import ssl
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
NATIVE = ROOT / "native"
STAMP = VENV / "setup.stamp"
UV = "uv==0.13.8"
UV_PROGRAM = VENV / "bin" / "uv"
NAME = "airflow-provider-slshudi"
HEADER = "# Exact versions for Python 3.10-3.12, made by `make constraints` from the ranges of pyproject.toml.\n"
BUNDLES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt")


def main() -> None:
    """Brings `.venv` to what constraints.txt and pyproject.toml say."""
    start = time.monotonic()
    if VENV.exists() and not _same_python():
        print(f"setup: making {VENV.name} anew, for Python {_version()}", flush=True)
        shutil.rmtree(VENV)
    state = _state()
    if STAMP.is_file() and STAMP.read_text(encoding="utf-8") == state:
        return
    STAMP.unlink(missing_ok=True)
    if not PYTHON.exists() or subprocess.run([PYTHON, "-m", "pip", "--version"], capture_output=True).returncode:
        _make_venv()
    environment = index_environment()
    print("setup: installing the packages of constraints.txt", flush=True)
    run([PYTHON, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", UV], environment)
    extra("dev")
    install_native(environment, PYTHON)
    # Where that may not be written, it is compiled at each start, as before.
    subprocess.run([PYTHON, "-m", "compileall", "-qq", ROOT / "airflow_provider_slshudi"])
    print("setup: preparing Java and Hudi", flush=True)
    run([PYTHON, "-m", "airflow_provider_slshudi.spark.runtime"], os.environ.copy())
    STAMP.write_text(state, encoding="utf-8")
    print(f"setup: done in {time.monotonic() - start:.0f} s", flush=True)


def extra(name: str) -> None:
    """Installs what an extra of pyproject.toml names, in the versions of constraints.txt."""
    fixed = ROOT / "constraints.txt"
    install(PYTHON, "-c", fixed, "-b", fixed, "-e", f"{ROOT}[{name}]")


def install(python: Path, *arguments: str | Path) -> None:
    """Has uv install beside a Python what it is told, without slshudi-native."""
    # Many images set PYTHONDONTWRITEBYTECODE: each process would compile what it imports, a second and more at a time.
    command: list[str | Path] = [UV_PROGRAM, "pip", "install", "--quiet", "--compile-bytecode", "--python", python]
    run([*command, "--override", _without_native(), *arguments], index_environment())


def constraints() -> None:
    """Resolves the dependencies anew and writes constraints.txt."""
    path = ROOT / "constraints.txt"
    command: list[str | Path] = [UV_PROGRAM, "pip", "compile", "--quiet", "--universal"]
    command += ["--python-version", "3.10", "--upgrade", "--all-extras"]
    command += ["--no-header", "--no-annotate", "--no-emit-package", NAME, "--override", _without_native()]
    run([*command, "pyproject.toml", "-o", path], index_environment())
    path.write_text(HEADER + path.read_text(encoding="utf-8"), encoding="utf-8")


def fits(version: str) -> None:
    """Resolves what a Python of the version installs, within constraints.txt, and installs nothing."""
    command: list[str | Path] = [UV_PROGRAM, "pip", "compile", "--quiet", "--all-extras", "--python-version", version]
    command += ["-c", "constraints.txt", "--override", _without_native(), "pyproject.toml"]
    command += ["-o", VENV / f"fits-{version}.txt"]
    run(command, index_environment())


def _without_native() -> Path:
    """An override by which uv leaves slshudi-native out: here it is built from its source, where that can be done."""
    path = VENV / "without-native.txt"
    path.write_text("slshudi-native ; sys_platform == 'never'\n", encoding="utf-8")
    return path


def _version() -> str:
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def _same_python() -> bool:
    """Whether `.venv` works, and is of the Python version that was chosen."""
    try:
        config = (VENV / "pyvenv.cfg").read_text(encoding="utf-8")
    except OSError:
        return False
    made = re.search(r"^version(?:_info)?\s*=\s*(\d+\.\d+)", config, re.MULTILINE)
    return made is not None and made[1] == _version() and PYTHON.exists()


def _state() -> str:
    """What an up-to-date `.venv` was made from."""
    digest = hashlib.sha256(f"{UV} {_version()} {ROOT}\n".encode())
    digest.update(f"{'with' if cargo() else 'without'} cargo\n".encode())
    digest.update(" ".join(sorted(path.name for path in ROOT.glob("dist/slshudi_native-*.whl"))).encode())
    for path in (ROOT / "constraints.txt", ROOT / "pyproject.toml", *_native_files()):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _native_files() -> list[Path]:
    """What slshudi-native is built from."""
    return sorted([*NATIVE.glob("*.toml"), *NATIVE.glob("*.pyi"), *NATIVE.glob("src/*.rs")])


def cargo() -> str | None:
    """One that runs: without a toolchain rustup's cargo does not, and once it has one, `.venv` is out of date."""
    found = shutil.which("cargo") or shutil.which("cargo", path=str(Path.home() / ".cargo" / "bin"))
    if found and subprocess.run([found, "--version"], capture_output=True).returncode:
        return None
    return found


def install_native(environment: dict[str, str], python: Path) -> None:
    """Puts slshudi-native beside a Python: built here, or a wheel of dist/. Without it a slower decoder does all."""
    built_by, uv_pip = cargo(), [str(UV_PROGRAM), "pip"]
    if built_by:
        print("setup: building slshudi-native, the fast decoder, with cargo", flush=True)
        environment = {
            **environment,
            "PATH": os.pathsep.join([str(Path(built_by).parent), environment.get("PATH", os.defpath)]),
        }
        source = [str(NATIVE)]
    else:
        source = ["--no-index", "--find-links", str(ROOT / "dist"), "slshudi-native"]
    command = [*uv_pip, "install", "--quiet", "--python", str(python), "--reinstall-package", "slshudi-native", *source]
    installed = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if not installed.returncode:
        return
    if built_by:
        said = [line.strip() for line in installed.stderr.splitlines()]
        reason = next((line for line in reversed(said) if line.startswith("error")), "no error given")
    else:
        reason = "no cargo was found that runs, and dist/ has no wheel that fits"
    print(f"setup: ptars decodes, not the faster slshudi-native: {reason}", flush=True)
    # One that an earlier run built may be of other sources.
    subprocess.run([*uv_pip, "uninstall", "--quiet", "--python", str(python), "slshudi-native"], env=environment)


def _make_venv() -> None:
    try:
        import ensurepip  # noqa: F401
        import venv
    except ImportError:
        raise SystemExit(
            f"{sys.executable} has no venv module: install it (Debian and Ubuntu: "
            f"apt-get install python{_version()}-venv), or name another Python with make PYTHON=/path/to/python3.11."
        ) from None
    print(f"setup: making {VENV.name} with Python {_version()} ({sys.executable})", flush=True)
    venv.create(VENV, clear=True, with_pip=True)


def index_environment() -> dict[str, str]:
    """Variables that let pip and uv trust what the system trusts, and let uv use the index that pip is told to use."""
    environment = os.environ.copy()
    answer = subprocess.run(
        [PYTHON, "-m", "pip", "config", "list"], capture_output=True, text=True, env=environment
    ).stdout
    told = {key.split(".")[-1]: value for key, value in re.findall(r"^(\S+)='(.*)'$", answer, re.MULTILINE)}
    bundle = told.get("cert") or _bundle()
    if bundle:
        environment.setdefault("PIP_CERT", bundle)
        environment.setdefault("SSL_CERT_FILE", bundle)
    environment.setdefault("UV_SYSTEM_CERTS", "true")
    for option, variable in (("index-url", "UV_DEFAULT_INDEX"), ("extra-index-url", "UV_INDEX")):
        if option in told:
            environment.setdefault(variable, told[option].replace("\\n", " ").strip())
    return environment


def _bundle() -> str | None:
    named = (os.environ.get("SSL_CERT_FILE"), ssl.get_default_verify_paths().cafile, *BUNDLES)
    return next((name for name in named if name and Path(name).is_file()), None)


def run(command: list[str | Path], environment: dict[str, str]) -> None:
    """Runs a command in the repository; ends with it where it fails."""
    done = subprocess.run([str(part) for part in command], env=environment, cwd=ROOT, stdin=subprocess.DEVNULL)
    if done.returncode:
        # The command has said what was wrong.
        raise SystemExit(1)


if __name__ == "__main__":
    asked = sys.argv[1:]
    if asked == ["constraints"]:
        constraints()
    elif asked[:1] == ["extra"]:
        extra(asked[1])
    elif asked[:1] == ["fits"]:
        fits(asked[1])
    else:
        main()
