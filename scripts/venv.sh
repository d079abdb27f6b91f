# Source this with $root set: ensure_venv FILE creates or updates the virtual environment ($venv) for a requirements file.
# While its stamp matches it does nothing and prints nothing. ERRAND_VENV sets another folder than .venv.
venv=${ERRAND_VENV:-$root/.venv}
lock=$venv.lock

fail() {
    echo "errand: $*" >&2
    exit 1
}

find_python() {
    for candidate in python3 python3.14 python3.13 python3.12 python3.11; do
        if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            command -v "$candidate"
            return
        fi
    done
    fail "needs Python 3.11 or newer; none of python3, python3.11 … python3.14 on the PATH is"
}

stamp_of() {
    echo "$1 $(cksum <"$root/$1")"
}

# without pyvenv.cfg its python is that of the system, and packages would be installed there
is_venv() {
    [ -x "$venv/bin/python" ] && [ -r "$venv/pyvenv.cfg" ]
}

is_current() {
    is_venv && [ -r "$venv/stamp" ] || return 1
    stamped=$(cat "$venv/stamp")
    case "$stamped" in *"$(stamp_of "$1")"*) return 0 ;; esac
    return 1
}

# one at a time: two installations into one environment would break it
take_lock() {
    mkdir -p "$(dirname "$venv")"
    waiting=
    until mkdir "$lock" 2>/dev/null; do
        owner=$(cat "$lock/pid" 2>/dev/null || echo)
        if [ -n "$owner" ] && ! kill -0 "$owner" 2>/dev/null; then
            rm -rf "$lock"
            continue
        fi
        [ -w "$(dirname "$lock")" ] || fail "cannot write to $(dirname "$lock") for the virtual environment; set ERRAND_VENV to a folder that you can write"
        [ -n "$waiting" ] || echo "errand: waiting for another installation (if there is none, remove $lock)" >&2
        waiting=yes
        sleep 0.5
    done
    echo $$ >"$lock/pid"
    trap 'rm -rf "$lock"' EXIT
    trap 'exit 130' INT TERM HUP
}

# on a terminal uv shows its own progress
install_with_uv() {
    is_venv || uv venv --quiet --python "$python" "$venv" || return
    quiet=--quiet
    [ ! -t 2 ] || quiet=
    # shellcheck disable=SC2086 # empty is no argument
    uv pip install $quiet --python "$venv/bin/python" --require-hashes -r "$root/$1"
}

install_with_pip() {
    if ! is_venv || ! "$venv/bin/python" -m pip --version >/dev/null 2>&1; then
        "$python" -c 'import venv, ensurepip' 2>/dev/null ||
            fail "$python lacks the venv module; on Debian and Ubuntu: apt install python3-venv (or install uv)"
        "$python" -m venv --clear "$venv"
    fi
    echo 1 >"$lock/status"
    # Python compiles what it imports; compiling everything takes half as long again, and 60 MB more
    {
        PIP_REQUIRE_VIRTUALENV=1 "$venv/bin/python" -m pip install --progress-bar off --disable-pip-version-check \
            --no-compile --require-hashes -r "$root/$1" && echo 0 >"$lock/status"
    } | show_progress "$1"
    [ "$(cat "$lock/status")" = 0 ]
}

# pip prints the name of each package when it starts with it
show_progress() {
    total=$(grep -c '^[a-zA-Z0-9].*==' "$root/$1" || true)
    count=0
    while read -r word package _; do
        case $word in
            Collecting | Processing) count=$((count + 1)) && step="$count of $total packages: ${package##*/}" ;;
            Installing) step="unpacking all of them" ;;
            *) continue ;;
        esac
        [ ! -t 2 ] || printf '\r\033[Kerrand: %s' "$step" >&2
    done
    [ ! -t 2 ] || printf '\r\033[K' >&2
}

ensure_venv() {
    is_current "$1" && return
    take_lock
    if ! is_current "$1"; then
        python=$(find_python) || exit 1
        echo "errand: installing the packages of $1 into $venv (a minute or two, and only when they change)" >&2
        if uv --version >/dev/null 2>&1; then
            install_with_uv "$1" || fail "the installation failed; see above"
        else
            install_with_pip "$1" || fail "the installation failed; see above"
        fi
        # the development packages contain the others
        { [ "$1" = requirements.txt ] || stamp_of requirements.txt; stamp_of "$1"; } >"$venv/stamp"
    fi
    rm -rf "$lock"
    trap - EXIT INT TERM HUP
}
