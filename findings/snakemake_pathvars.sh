#!/bin/sh
# Snakemake 9.27.1: a rule's own `pathvars` are unknown where a default storage provider is named.
#
# The same rule runs without a provider. With one, whichever it is, Snakemake ends with an UndefinedPathvarException, because the
# paths of a rule are expanded by the workflow's pathvars alone there; pathvars of the workflow work both times.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check snakemake==9.27.1 snakemake-storage-plugin-fs==1.1.3
cd "$folder"
cat > Snakefile <<'END'
rule all:
    output:
        "<stage>/page.txt",
    pathvars:
        stage="results",
    shell:
        "touch {output}"
END
run() {
    status=0
    venv/bin/snakemake --cores 1 --dry-run "$@" > output.txt 2>&1 || status=$?
    echo "$* -> $status"
}
run
test "$status" = 0
run --default-storage-provider fs --default-storage-prefix "$folder/store"
grep -A 2 "UndefinedPathvarException" output.txt
test "$status" = 1
sed -i -e '/^    pathvars:/,/^        stage=/d' -e '1i pathvars:\n    stage="results",\n' Snakefile
run --default-storage-provider fs --default-storage-prefix "$folder/store"
test "$status" = 0
