#!/bin/bash
# profiles/slurm against a real Slurm: one node on this machine, brought up in a temporary folder and taken down again.
# Runs a small compare list through it, then checks the resources requested of Slurm. By hand, as root; not part of `make test`.
# Needs munge, slurmctld, slurmd and slurm-client (Debian packages), .venv, and envs/slurm.txt installed into it.
# Usage: tests/slurm/run.sh
set -euo pipefail
cd "$(dirname "$0")/../.."
ROOT=$PWD
[ "$(id -u)" = 0 ] || { echo "run it as root: slurmd starts jobs as other users"; exit 1; }
for program in munged slurmctld slurmd sbatch; do
    command -v "$program" >/dev/null || { echo "$program is missing: apt-get install munge slurmctld slurmd slurm-client"; exit 1; }
done
.venv/bin/python -c "import snakemake_executor_plugin_slurm" 2>/dev/null ||
    { echo "the executor is missing: .venv/bin/python -m pip install -r envs/slurm.txt"; exit 1; }

[ ! -e /etc/slurm/slurm.conf ] || { echo "/etc/slurm/slurm.conf is there: this machine already has Slurm"; exit 1; }

WORK=$(mktemp -d /tmp/ladder-slurm.XXXXXX)
STARTED=()
stop() {
    for process in "${STARTED[@]}"; do kill "$process" 2>/dev/null || true; done
    wait 2>/dev/null || true
    find /etc/slurm -maxdepth 1 -lname "$WORK/*" -delete
    [ -n "${KEEP:-}" ] && echo "kept: $WORK" || rm -rf "$WORK"
}
trap stop EXIT

# The cluster. More processors than may exist, so that jobs run in parallel, and one GPU that does not exist.
HOST=$(hostname -s)
mkdir -p "$WORK"/{munge,state,spool}
chmod 755 "$WORK"   # munge checks the whole path
dd if=/dev/urandom of="$WORK/munge/key" bs=1024 count=1 status=none
chmod 600 "$WORK/munge/key"
cat > "$WORK/slurm.conf" <<CONF
ClusterName=ladder
SlurmctldHost=$HOST(127.0.0.1)
SlurmctldPort=26817
SlurmdPort=26818
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
AuthType=auth/munge
AuthInfo=socket=$WORK/munge/socket
CredType=cred/munge
SlurmUser=root
SlurmdUser=root
StateSaveLocation=$WORK/state
SlurmdSpoolDir=$WORK/spool
SlurmctldPidFile=$WORK/slurmctld.pid
SlurmdPidFile=$WORK/slurmd.pid
SlurmctldLogFile=$WORK/slurmctld.log
SlurmdLogFile=$WORK/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
SlurmdParameters=config_overrides
ReturnToService=2
MinJobAge=3600
AccountingStorageType=accounting_storage/none
GresTypes=gpu
NodeName=$HOST NodeAddr=127.0.0.1 CPUs=8 RealMemory=32000 Gres=gpu:1 State=UNKNOWN
PartitionName=all Nodes=$HOST Default=YES MaxTime=INFINITE State=UP
CONF
echo "NodeName=$HOST Name=gpu File=/dev/null" > "$WORK/gres.conf"
ln -s "$WORK/slurm.conf" "$WORK/gres.conf" /etc/slurm/   # where jobs look, which know no other path
munged --foreground --force --key-file="$WORK/munge/key" --socket="$WORK/munge/socket" --pid-file="$WORK/munge/pid" \
    --log-file="$WORK/munge/log" --seed-file="$WORK/munge/seed" & STARTED+=($!)
sleep 1
slurmctld -D > "$WORK/slurmctld.out" 2>&1 & STARTED+=($!)
slurmd -D > "$WORK/slurmd.out" 2>&1 & STARTED+=($!)
for _ in {1..60}; do
    sinfo --noheader --format=%T 2>/dev/null | grep -q idle && break
    sleep 1
done
sinfo | tee "$WORK/sinfo"
grep -q idle "$WORK/sinfo" || { tail "$WORK"/slurm*.log; echo "FAILED: the node is not up"; exit 1; }

# The project, and a list of three runs, one of which diverges.
mkdir "$WORK/project"
git ls-files -z --cached --others --exclude-standard | xargs -0 cp --parents -t "$WORK/project"
ln -s "$(readlink -f .venv)" "$WORK/project/.venv"
cd "$WORK/project"
sweep() {
    .venv/bin/snakemake "$@" --workflow-profile profiles/slurm --slurm-no-account --slurm-status-command squeue \
        --slurm-init-seconds-before-status-checks 3 --latency-wait 10
}
SETTINGS=(train_limit=120 test_limit=40 network=lenet_5 epochs=1 warmup_steps=0 optimizer=sgd variant=cpu
          'runs=[{learning_rate: [1e-2, 1e-1, 1e12]}]')
sweep runs --config "${SETTINGS[@]}" 2>&1 | tee "$WORK/output"

FAILED=0
check() {   # WHAT COMMAND...: says whether the command succeeds
    if "${@:2}" >/dev/null; then echo "ok: $1"; else echo "FAILED: $1"; FAILED=1; fi
}
scontrol show jobs --oneliner > "$WORK/jobs"
jobs() {   # the number of jobs with all of these words
    local found
    found=$(cat "$WORK/jobs")
    for word in "$@"; do found=$(grep "$word" <<< "$found" || true); done
    grep -c . <<< "$found" || true
}
echo; squeue --all --states=all --format="%i %k %T %C %m %l %b"; echo
check "the page exists" test -s results/runs.html
check "it has all three runs, one of them with the reason for which it failed" \
    grep -q "the loss is" results/runs.json
check "every job that Slurm saw is completed" test "$(jobs JobState=COMPLETED)" = "$(wc -l < "$WORK/jobs")"
check "one job for each artifact" test "$(wc -l < "$WORK/jobs")" = "$(ls -d results/*/*/manifest.json | wc -l)"
check "three trainings, with their processors, memory and time" \
    test "$(jobs Comment=rule_train_network "NumCPUs=4 " TimeLimit=1-00:00:00 MinMemoryNode=6000M)" = 3
check "no GPU for a rung that needs none" test "$(jobs 'TresPerJob=gres.gpu')" = 0
sweep runs --config "${SETTINGS[@]}" > "$WORK/again" 2>&1
check "the second time no stage is made" bash -c "! grep -q rule_train_network $WORK/again"
touch "$WORK/now"
sweep evaluate --config "${SETTINGS[@]}" learning_rate=1e-2 -R train_network > "$WORK/forced" 2>&1
check "a stage that is forced is made again" test "$(find results/train results/evaluate -name manifest.json -newer "$WORK/now" | wc -l)" = 2
check "from its first step" test -z "$(grep -l "resuming after" logs/train/*.log)"

# The other stages: features of two layers, every classifier, the map, a fit to patches.
OTHERS=(dataset=digits network=autoencoder train_limit=120 test_limit=40 autoencoder_filters=[4,4] patches_samples=[500] training=patches
        variant=cpu 'evaluations=[linear, ridge, knn]' 'features_concatenate=[{features_layer: enc1_pool, features_pool: 4}]' classify_shifts=1)
sweep report --config "${OTHERS[@]}" > "$WORK/others" 2>&1 || { tail -20 "$WORK/others"; FAILED=1; }
scontrol show jobs --oneliner > "$WORK/jobs"
for rule in fit_patches join_features shift_features map_features fit_linear fit_ridge classify_knn; do
    check "$rule was a job of its own, with the profile's processors" test "$(jobs "Comment=rule_$rule" \
        "NumCPUs=$(sed -n "s/^  - $rule=//p" profiles/slurm/config.yaml) ")" -ge 1
done

# A network of one's own, which goes on, beside the same training by another rung; its gradients; a search, run after run.
cat > mine.yaml <<TABLE
loss: mse
features: code
layers:
  - {layer: enc, kind: conv2d, filters: 4}
  - {layer: code, kind: maxpool2d}
  - {layer: up, kind: upsample2d}
  - {layer: dec, kind: conv2d, filters: channels}
TABLE
MINE=(train_limit=120 test_limit=40 warmup_steps=0 network=mine.yaml variant=cpu features_variant=cpu_sequential
      'runs=[{variant: cpu_sequential}]' 'controls=[]' 'targets=[{metric: loss, at_most: 1}]' validation=20 patience=3)
for epochs in 1 2; do
    sweep report --config "${MINE[@]}" epochs=$epochs > "$WORK/mine$epochs" 2>&1 || { tail -20 "$WORK/mine$epochs"; FAILED=1; }
done
check "both trainings went on from the shorter ones" \
    test "$(grep -l "going on from" logs/train/*.log | wc -l)" = 2
check "the target is met" grep -q '"met": true' results/summary.json
sweep runs --config "${SETTINGS[@]}" 'search={strategy: tpe, budget: 2, keys: {batch_size: {min: 8, max: 32}}}' \
    > "$WORK/search" 2>&1 || { tail -20 "$WORK/search"; FAILED=1; }
check "the search has two runs, and its study" python3 -c "import json, os
assert os.path.getsize('results/best.yaml') and os.path.getsize('results/search.db')"
scontrol show jobs --oneliner > "$WORK/jobs"
check "search_runs was a job of its own" test "$(jobs Comment=rule_search_runs)" = 1
check "one job for each artifact, of the search too" test "$(jobs JobState=COMPLETED Comment=rule_train_network)" -ge 9

# A GPU rung is requested here, without a GPU, and gets that of the node, which does not exist either: its job has to fail.
sweep train --config "${SETTINGS[@]}" variant=gpu_basic > "$WORK/gpu" 2>&1 || true
scontrol show jobs --oneliner > "$WORK/jobs"
check "one GPU for the training of a rung that computes on one" \
    test "$(jobs Comment=rule_train_network TresPerJob=gres.gpu:1)" = 1
grep -h "needs" logs/train/*.log | tail -1 || true
exit $FAILED
