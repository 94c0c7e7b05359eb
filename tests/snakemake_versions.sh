#!/bin/bash
# The digits chain under the oldest Snakemake that the Snakefile names (min_version) and the newest release: the whole chain,
# `snakemake -n` with its reasons, one stage made again, and a kill. By hand; not a part of `make test`.
# Usage: tests/snakemake_versions.sh [VERSION...]
set -euo pipefail
cd "$(dirname "$0")/.."
ROOT=$PWD
OLDEST=$(sed -n 's/^min_version("\(.*\)").*/\1/p' Snakefile)
NEWEST=$("${PYTHON:-python3}" -m pip index versions snakemake 2>/dev/null | sed -n '1s/.*(\(.*\)).*/\1/p')
[ $# -gt 0 ] || set -- "$OLDEST" "$NEWEST"

WORK=$(mktemp -d /tmp/ladder-snakemake.XXXXXX)
trap 'rm -rf "$WORK"' EXIT

fail() { echo "FAILED: $*"; exit 1; }
# expect WORDS COMMAND...: run it, show the line with the words, fail without one.
expect() {
    local words=$1; shift
    "$@" > "$WORK/output" 2>&1 || true
    grep -m1 -- "$words" "$WORK/output" || { tail -30 "$WORK/output"; fail "no line with '$words' from: ${*//$WORK/}"; }
}

for version; do
    echo "== Snakemake $version"
    "${PYTHON:-python3}" -m venv "$WORK/venv-$version"
    # The project's pins, except Snakemake's own packages, and without hashes, as pip would ask for them of those too.
    sed -n '/^snakemake/d; s/^\([a-z].*\) \\$/\1/p' envs/cpu.txt > "$WORK/requirements.txt"
    "$WORK/venv-$version/bin/python" -m pip install --quiet --disable-pip-version-check -r "$WORK/requirements.txt" \
        "snakemake==$version" 2>/dev/null || fail "snakemake $version cannot be installed with the project's pins"
    SNAKEMAKE=$WORK/venv-$version/bin/snakemake
    mkdir "$WORK/project-$version"
    git -C "$ROOT" archive HEAD | tar -x -C "$WORK/project-$version"
    cd "$WORK/project-$version"
    sed -i 's/^epochs: .*/epochs: 2/' config.yaml

    echo "-- $("$SNAKEMAKE" --version): the whole chain"
    "$SNAKEMAKE" results/report.html > "$WORK/output" 2>&1 || { tail -30 "$WORK/output"; fail "the digits chain"; }
    grep "test accuracy" "$WORK/output"
    expect "Nothing to be done" "$SNAKEMAKE" -n
    echo "-- reasons"
    expect ": C 10 -> 3" "$SNAKEMAKE" -n --config svm_C=3
    expect "parent svm changed" "$SNAKEMAKE" -n --config svm_C=3
    echo "-- one stage again"
    before=$(stat -c %Y results/svm/*/manifest.json | sort | tail -1)
    sleep 1
    expect "svm .*: made again" "$SNAKEMAKE" report -R fit_svm
    after=$(stat -c %Y results/svm/*/manifest.json | sort | head -1)
    [ "$after" -gt "$before" ] && echo "all SVMs were made again" || fail "-R fit_svm made nothing"
    echo "-- switched and back"
    "$SNAKEMAKE" --config svm_C=3 > "$WORK/output" 2>&1 || { tail -30 "$WORK/output"; fail "another configuration"; }
    other=$(sha256sum < results/report.html)
    "$SNAKEMAKE" > "$WORK/output" 2>&1 || { tail -30 "$WORK/output"; fail "back again"; }
    [ "$other" != "$(sha256sum < results/report.html)" ] && echo "the page follows the configuration" || fail "the page is the other run's"
    echo "-- killed in the middle of training, and the same command again"
    setsid "$SNAKEMAKE" train --config seed=2 epochs=40 > "$WORK/killed" 2>&1 &
    pid=$!
    for _ in $(seq 300); do
        ls results/train/*/checkpoint.safetensors > /dev/null 2>&1 && break
        sleep 0.2
    done
    kill -9 -- "-$pid" 2>/dev/null || true
    wait "$pid" 2>/dev/null || true
    expect "resuming after step" "$SNAKEMAKE" train --config seed=2 epochs=40
    [ "$(ls results/train/*/manifest.json | wc -l)" = 2 ] || fail "no training after a kill"
    cd "$ROOT"
done
echo "all passed"
