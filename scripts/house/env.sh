# Sourced by the scripts beside this folder: finds Python, makes .venv, installs, says what it does.
# Functions: ensure_env LEVEL   LEVEL is `lab` (to use the notebooks) or `dev` (to work on the code).

ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)"
VENV="$ROOT/.venv"
PY="$VENV/bin/python"
ME="$(basename "$0")"

say() { printf '%s: %s\n' "$ME" "$*" >&2; }
die() { say "$*"; exit 1; }

# A Python that we support, with venv and pip inside. 3.11 goes first: the pinned PyTorch was tested there.
find_python() {
    local name
    for name in python3.11 python3.12 python3 python; do
        if "$name" -c 'import ensurepip, sys, venv; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 12))' \
            >/dev/null 2>&1; then
            command -v "$name"
            return 0
        fi
    done
    return 1
}

# Names the exact set of requirements, so that a second run has nothing to do. Tool settings do not count.
requirements_key() {
    "$PY" - "$ROOT" <<'PYTHON'
import hashlib, json, pathlib, sys, tomllib

root = pathlib.Path(sys.argv[1])
project = tomllib.loads((root / "pyproject.toml").read_text())
parts = [sys.argv[1], sys.version, project["project"], project["build-system"], project["tool"]["hatch"]]
text = json.dumps(parts, sort_keys=True) + (root / "constraints.txt").read_text()
print(hashlib.sha256(text.encode()).hexdigest())
PYTHON
}

stamp_matches() { [ -f "$VENV/.ready-$1" ] && [ "$(cat "$VENV/.ready-$1")" = "$2" ]; }

# On a terminal pip shows its progress bars; elsewhere only the lines that say what is fetched or wrong.
pip_install() {
    local pip=("$PY" -m pip --disable-pip-version-check install --constraint "$ROOT/constraints.txt")
    if [ -t 1 ]; then "${pip[@]}" "$@"; else "${pip[@]}" "$@" 2>&1 | brief; fi
}

brief() {
    grep --line-buffered -E '^ *(Downloading|Processing|Successfully|ERROR|error)|^\s+(×|╰)|[Nn]o space' || true
}

make_venv() {
    local python
    if [ -d "$VENV" ] && "$PY" -c 'import pip' >/dev/null 2>&1; then return 0; fi
    python="$(find_python)" || die "Python 3.11 or 3.12 (with venv and pip) was not found on PATH; install one and try again"
    say "making .venv with $("$python" --version 2>&1) ($python)"
    "$python" -m venv --clear "$VENV" || die "could not make $VENV"
}

ensure_env() {
    local level="$1" key torch rest
    make_venv
    key="$(requirements_key)"
    if stamp_matches dev "$key" || stamp_matches "$level" "$key"; then return 0; fi
    torch="$(grep '^torch==' "$ROOT/constraints.txt")"
    rest="190 MB"
    if [ "$level" = dev ]; then rest="280 MB, the tools for tests among them"; fi
    say "installing into .venv what is missing there; to download, unless pip has it already:"
    say "  1. PyTorch ($torch): 190 MB as a CPU build, about 3 GB where pip takes the CUDA build"
    say "  2. YAIE Magic, transformers, JupyterLab and what they need: about $rest"
    say "  no model: \`tiny\` is part of this folder"
    # PyTorch alone and first, so that nothing else can choose another build of it.
    pip_install "$torch" || die "pip could not install $torch"
    pip_install --editable "$ROOT[$level]" || die "pip could not install YAIE Magic"
    printf '%s\n' "$key" >"$VENV/.ready-$level"
    say "installed"
}
