#!/usr/bin/env bash
# run.sh BUILD - the Python bindings over the libquire of a build: pytest, mypy, wheels that are built, installed into a
# venv without a network, and used. Debian's python3, numpy and pytest are taken, whatever python3 the PATH has.
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
build=$(cd "${1:?usage: run.sh BUILD}" && pwd)
python=/usr/bin/python3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export TMPDIR=$work PYTHONDONTWRITEBYTECODE=1 QUIRE_PROGRAM=$build/quire
export OPENBLAS_NUM_THREADS=1 # of numpy: more threads wait for each other
library=$build/libquire.so.1

has() { "$python" -c "import $1" 2>/dev/null; }

# shellcheck source=/dev/null
. "$here/../../../tests/expect.sh"

if [[ ! -x $python ]] || ! has numpy || ! has pytest; then
    echo "skip - Python bindings: needs Debian's python3, python3-numpy and python3-pytest (tools/setup-debian.sh test)"
    exit 0
fi
case ${QUIRE_SANITIZE_FLAGS:-} in
*thread*)
    echo "skip - Python bindings: ThreadSanitizer cannot be loaded into a python3 that was built without it"
    exit 0
    ;;
*address*)
    # the interpreter frees little at its end, which is no leak of the library's
    export LD_PRELOAD=$(gcc -print-file-name=libasan.so) ASAN_OPTIONS=detect_leaks=0:${ASAN_OPTIONS:-}
    ;;
esac

# ---- the suite: each of its tests counts -----------------------------------------------------------------------------
suite() { # FOLDER WORDS TESTS...
    local folder=$1 words=$2 status before=$failed
    shift 2
    (cd "$folder" &&
        QUIRE_LIBRARY=$library "$python" -m pytest -p no:cacheprovider -o faulthandler_timeout=200 -v -rs "$@") >"$work/suite" 2>&1
    status=$?
    while read -r name outcome _; do
        case $outcome in
        PASSED) echo "ok - $name$words"; passed=$((passed + 1)) ;;
        FAILED | ERROR) echo "FAIL - $name$words"; failed=$((failed + 1)) ;;
        SKIPPED) echo "skip - $name$words: $(grep -m1 "^SKIPPED.*${name%%::*}" "$work/suite" | sed 's/^[^:]*:[0-9]*: //')" ;;
        esac
    done < <(grep -E '^tests/[a-z_]+\.py::.* (PASSED|FAILED|ERROR|SKIPPED)' "$work/suite" | sed 's/\[[^]]* [^]]*\]//')
    if ((status != 0)); then
        ((failed > before)) || { echo "FAIL - pytest ended with $status$words"; failed=$((failed + 1)); }
        tail -80 "$work/suite" | sed 's/^/       /'
    fi
}
cp -r "$here/.." "$work/source" && rm -rf "$work"/source/{build,*.egg-info}
compile() { env -C "$work/compiled" "$python" -W ignore setup.py -q build_ext --inplace && ls "$work"/compiled/quire/_fast.*.so; }
suite "$here/.." "" tests
cp -r "$work/source" "$work/compiled"
if command -v gcc >/dev/null && [[ -e $("$python" -c 'import sysconfig; print(sysconfig.get_path("include"))')/Python.h ]]; then
    expect "a search is compiled" compile
    suite "$work/compiled" ", compiled" tests/test_index.py tests/test_misuse.py
else
    echo "skip - a search, compiled: needs gcc and python3-dev (tools/setup-debian.sh test)"
fi
unset LD_PRELOAD

# ---- types -----------------------------------------------------------------------------------------------------------
if command -v mypy >/dev/null; then
    expect "mypy --strict" env -C "$work/source" mypy --python-executable "$python" --cache-dir "$build/mypy" --strict quire
else
    echo "skip - mypy --strict: there is no mypy (tools/setup-debian.sh test)"
fi

# ---- wheels ----------------------------------------------------------------------------------------------------------
if [[ -n ${QUIRE_SANITIZE_FLAGS:-} ]]; then
    echo "skip - wheels: a sanitized library is not installed"
elif ! has build || ! has wheel; then
    echo "skip - wheels: needs python3-build and python3-wheel (tools/setup-debian.sh test)"
else
    make_wheel() { env -C "$work/source" "${@:2}" "$python" -m build --wheel --no-isolation --outdir "$work/$1" .; }
    install() { # NAME: into a venv of its own, with the system's numpy and no network; by the pip of the first of them
        local without_pip=()
        [[ ! -e $work/venv-plain ]] || without_pip=(--without-pip)
        "$python" -m venv --system-site-packages "${without_pip[@]}" "$work/venv-$1" &&
            "$work/venv-plain/bin/pip" --python "$work/venv-$1/bin/python" install --no-index --no-deps "$work/$1"/quire-*.whl
    }
    use() { # NAME COMPILED: from another folder than the sources
        env -C "$work" "${@:3}" "$work/venv-$1/bin/python" -c '
import os, sys, tempfile, numpy, quire
assert "venv-" in quire.__file__ and os.path.exists(os.path.join(os.path.dirname(quire.__file__), "py.typed"))
rows = numpy.random.default_rng(1).standard_normal((500, 8)).astype("float32")
with quire.Index.build(os.path.join(tempfile.mkdtemp(), "index"), rows) as index:
    ids, distances = index.search(rows[42], k=3, exact=True)
assert ids[0] == 42, ids
assert quire.compiled == (sys.argv[1] == "compiled"), quire.compiled
print(quire.__file__)' "$2"
    }
    expect "a wheel is built with Debian's tools, without a compiler" make_wheel plain CC=/nonexistent/cc
    expect "it is of any platform" ls "$work"/plain/quire-*-py3-none-any.whl
    expect "it is installed into a venv without a network" install plain
    expect "it is used with the library that QUIRE_LIBRARY names" use plain pure QUIRE_LIBRARY="$library"
    expect "it is used with the library that the system finds" use plain pure LD_LIBRARY_PATH="$build"
    expect "a wheel that brings the library along is built" make_wheel bundled QUIRE_BUNDLE="$library"
    expect "it is of this platform, compiled for Python 3.11 and newer" ls "$work"/bundled/quire-*-cp311-abi3-linux_*.whl
    expect "it has no source of C in it" bash -c "! $python -m zipfile -l $work/bundled/quire-*.whl | grep -F .c\ "
    expect "it is installed" install bundled
    expect "it is used without any other library" use bundled compiled LD_LIBRARY_PATH=
fi
echo "$passed passed, $failed failed"
((failed == 0))
