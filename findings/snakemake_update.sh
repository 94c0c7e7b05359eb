#!/bin/sh
# Snakemake 9.27.1: a job with an `update` output that has failed is not run again.
#
# The rule's input is newer than its output, so the first command runs it, and it fails: exit status 1. Snakemake puts the former
# output back, with a new time, so the second command, with nothing changed, says "Nothing to be done" and ends with 0.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check snakemake==9.27.1
cd "$folder"
cat > Snakefile <<'END'
rule page:
    input:
        "input.txt",
    output:
        update("page.txt"),
    shell:
        "exit 1"
END
echo old > page.txt
sleep 2
echo new > input.txt
first=0
venv/bin/snakemake --cores 1 --rerun-triggers mtime --keep-incomplete page.txt > first.txt 2>&1 || first=$?
second=0
venv/bin/snakemake --cores 1 --rerun-triggers mtime --keep-incomplete page.txt > second.txt 2>&1 || second=$?
tail -n 3 first.txt
echo "the first command ended with $first, the second with $second; page.txt has: $(cat page.txt)"
grep "Nothing to be done" second.txt
test "$first" = 1 && test "$second" = 0
