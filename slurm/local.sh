#!/usr/bin/env bash
# A real SLURM on one machine, without systemd: munge, slurmctld and N virtual nodes, each with an address, a host name
# and a port space of its own (network and UTS namespaces). /tmp, /dev/shm and process numbers are shared.
#
#   slurm/local.sh up       bring it up, or repair it; prints what to source
#   slurm/local.sh down     cancel jobs and end the daemons, by their numbers; --purge removes the state too
#   slurm/local.sh status   daemons, nodes, queue; exit code 0 only when every node is usable
#   slurm/local.sh env      what to source
#
#   -d DIR   state, at most 60 characters: sockets lie below it   [${TMPDIR:-/tmp}/slurm-local]
#   -n N     virtual nodes                                        [6]
#   -c N     CPUs of a node; it may claim more than there are     [8]
#   -g N     GPUs of a node, which are none: links to /dev/null   [0]
#   -i ID    0..99: ports and subnet, for several clusters        [0]
#   --pmix   also install what `srun --mpi=pmix` needs
#   --no-install   never call apt-get
#
# Wants root and CAP_NET_ADMIN. Packages (Debian): slurmctld slurmd slurm-client munge.
set -euo pipefail

DIR=${TMPDIR:-/tmp}/slurm-local NODES=6 CPUS=8 GPUS=0 ID=0 PMIX=0 INSTALL=1 PURGE=0
MEMORY_MB=64000 # claimed by each node
PARTITIONS='PartitionName=main Nodes=ALL Default=YES DefaultTime=60 MaxTime=INFINITE State=UP PriorityTier=10
PartitionName=low Nodes=ALL DefaultTime=60 MaxTime=INFINITE State=UP PriorityTier=1 GraceTime=60'

log() { printf 'slurm-local: %s\n' "$*" >&2; }
die() {
  log "error: $*"
  exit 1
}
usage() { sed -n '2,/^set -euo/{/^set/d;s/^# \{0,1\}//;p}' "$0" >&2; }

VERB=${1:-}
[[ $# -eq 0 ]] || shift
while [[ $# -gt 0 ]]; do
  case $1 in
    -d | -n | -c | -g | -i) [[ $# -ge 2 ]] || die "$1 needs a value" ;;&
    -d) DIR=$2 && shift 2 ;;
    -n) NODES=$2 && shift 2 ;;
    -c) CPUS=$2 && shift 2 ;;
    -g) GPUS=$2 && shift 2 ;;
    -i) ID=$2 && shift 2 ;;
    --pmix) PMIX=1 && shift ;;
    --no-install) INSTALL=0 && shift ;;
    --purge) PURGE=1 && shift ;;
    *) usage && die "unknown option $1" ;;
  esac
done
DIR=$(realpath -m "$DIR")
[[ $DIR != / && ${#DIR} -le 60 ]] || die "-d wants a path of at most 60 characters: $DIR"
for value in "$NODES" "$CPUS" "$GPUS" "$ID"; do
  [[ $value =~ ^[0-9]+$ ]] || die "not a number: $value"
done
((NODES >= 1 && NODES <= 64 && CPUS >= 1 && ID <= 99)) || die "-n 1..64, -c 1.., -i 0..99"

export SLURM_CONF=$DIR/etc/slurm.conf
use_id() { ID=$1 BRIDGE=slbr$1 SUBNET=10.213.$1 CONTROL_PORT=$((20000 + $1 * 100)) NODE_PORT=$((20001 + $1 * 100)); }
saved_id() { sed -n 's/^ClusterName=local//p' "$SLURM_CONF" 2>/dev/null || true; }
use_id "$ID"

# Processes. A file holds number and start time, so that a number that was given again is never signalled.

start_time() {
  local stat fields
  stat=$(cat "/proc/$1/stat" 2>/dev/null) || return 1
  read -ra fields <<<"${stat##*) }"
  [[ ${fields[0]} != Z ]] && echo "${fields[19]}"
}
pid_of() { cut -d' ' -f1 "$DIR/run/$1.proc"; }
alive() { # NAME
  local pid started
  read -r pid started 2>/dev/null <"$DIR/run/$1.proc" || return 1
  [[ $(start_time "$pid") == "$started" ]]
}
spawn() { # NAME COMMAND..., which must exec in place
  local name=$1
  shift
  setsid "$@" >"$DIR/log/$name.out" 2>&1 </dev/null 9>&- &
  local pid=$!
  disown "$pid" 2>/dev/null || true
  echo "$pid $(start_time "$pid")" >"$DIR/run/$name.proc"
}
end() { # NAME
  if alive "$1"; then
    local pid
    pid=$(pid_of "$1")
    kill -TERM "$pid" 2>/dev/null || true
    for ((i = 0; i < 100; i++)); do
      alive "$1" || break
      sleep 0.05
    done
    alive "$1" && kill -KILL "$pid" 2>/dev/null
  fi
  rm -f "$DIR/run/$1.proc"
}

# Packages. A policy file keeps Debian from starting the daemons as services.

missing_packages() {
  local pair
  for pair in slurmctld:slurmctld slurmd:slurmd sbatch:slurm-client munged:munge ip:iproute2; do
    command -v "${pair%%:*}" >/dev/null || printf '%s ' "${pair##*:}"
  done
  if ((PMIX)) && ! compgen -G '/usr/lib/*/pmix2/lib/libpmix.so' >/dev/null; then printf 'libpmix-dev'; fi
}
install_packages() {
  local missing policy=/usr/sbin/policy-rc.d ours=0 failed=0
  read -ra missing <<<"$(missing_packages)"
  [[ ${#missing[@]} -gt 0 ]] || return 0
  ((INSTALL)) || die "missing packages: ${missing[*]}"
  log "installing ${missing[*]}"
  if [[ ! -e $policy ]]; then
    ours=1
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod 755 "$policy"
  fi
  {
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}"
  } >"$DIR/log/apt.log" 2>&1 </dev/null || failed=1
  ((ours == 0)) || rm -f "$policy"
  if ((failed)); then
    tail -5 "$DIR/log/apt.log" >&2
    die "apt-get failed, see $DIR/log/apt.log"
  fi
  ((PMIX == 0)) || end_nodes # they look for it when they start
}

# Network: a namespace for each node, all on one bridge; this machine is .254.

space() { echo "sl$ID-n$1"; }
network_up() {
  local k link
  if [[ ! -e /sys/class/net/$BRIDGE ]]; then
    ip link add "$BRIDGE" type bridge || die "no right to make networks; CAP_NET_ADMIN is needed"
    ip addr add "$SUBNET.254/24" dev "$BRIDGE"
  fi
  ip link set "$BRIDGE" up
  for ((k = 1; k <= NODES; k++)); do
    link=slv$ID-$k
    [[ -e /run/netns/$(space "$k") ]] || ip netns add "$(space "$k")"
    [[ ! -e /sys/class/net/$link ]] || continue
    ip link add "$link" type veth peer name eth0 netns "$(space "$k")"
    ip link set "$link" master "$BRIDGE" up
    ip -n "$(space "$k")" addr add "$SUBNET.$k/24" dev eth0
    ip -n "$(space "$k")" link set eth0 up
    ip -n "$(space "$k")" link set lo up
  done
}
network_down() { # of the cluster in DIR, whose ID need not be the one asked for
  local old path
  old=$(saved_id)
  [[ -n $old ]] || return 0
  use_id "$old"
  for path in /run/netns/sl"$ID"-n*; do [[ ! -e $path ]] || ip netns del "${path##*/}"; done
  [[ ! -e /sys/class/net/$BRIDGE ]] || ip link del "$BRIDGE"
  for path in /sys/class/net/slv"$ID"-*; do [[ ! -e $path ]] || ip link del "${path##*/}" 2>/dev/null || true; done
}

# Configuration.

write_config() { # FOLDER
  local k gres=
  ((GPUS == 0)) || gres=" Gres=gpu:h100:$GPUS"
  cat >"$1/slurm.conf" <<E
ClusterName=local$ID
SlurmctldHost=$(hostname -s)($SUBNET.254)
SlurmctldPort=$CONTROL_PORT
SlurmUser=$(id -un)
SlurmdUser=$(id -un)
AuthType=auth/munge
# A job that is queued again waits as long as a credential may be used; 120 s by default.
AuthInfo=socket=$DIR/run/munge.socket,cred_expire=15
CredType=cred/munge
StateSaveLocation=$DIR/state
SlurmdSpoolDir=$DIR/spool/%n
# PMIx makes the same folder for every node of this machine otherwise.
TmpFS=$DIR/tmp/%n
SlurmctldPidFile=$DIR/run/slurmctld.pid
SlurmdPidFile=$DIR/run/slurmd.%n.pid
SlurmctldLogFile=$DIR/log/slurmctld.log
SlurmdLogFile=$DIR/log/slurmd.%n.log
SlurmctldDebug=verbose
SlurmdDebug=verbose
# No cgroups: works in containers and on any kernel.
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/linux
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/filetxt
JobCompLoc=$DIR/log/jobcomp.log
SwitchType=switch/none
MpiDefault=pmi2
SlurmdParameters=config_overrides
ReturnToService=2
GresTypes=gpu
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
DefMemPerCPU=$((MEMORY_MB / CPUS))
# Jobs of several components are started by the backfill scheduler alone: let it look every second.
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1,bf_hetjob_immediate,bf_hetjob_prio=min,sched_interval=5,batch_sched_delay=0
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
JobRequeue=1
KillWait=5
CompleteWait=0
InactiveLimit=0
SlurmdTimeout=60
MinJobAge=86400
E
  : >"$1/gres.conf"
  # Only device files make SLURM set CUDA_VISIBLE_DEVICES; links to one will do.
  ((GPUS == 0)) || echo "NodeName=n[1-$NODES] Name=gpu Type=h100 File=$DIR/dev/nvidia[0-$((GPUS - 1))]" >"$1/gres.conf"
  : >"$1/resolv.conf" # no name server: what hosts does not know fails at once, not after 10 s
  printf '127.0.0.1 localhost\n%s.254 %s\n' "$SUBNET" "$(hostname -s)" >"$1/hosts"
  for ((k = 1; k <= NODES; k++)); do
    printf 'NodeName=n%d NodeAddr=%s Port=%d CPUs=%d Boards=1 SocketsPerBoard=1 CoresPerSocket=%d RealMemory=%d%s\n' \
      "$k" "$SUBNET.$k" "$NODE_PORT" "$CPUS" "$CPUS" "$MEMORY_MB" "$gres" >>"$1/slurm.conf"
    printf '%s.%d n%d\n::ffff:%s.%d n%d\n' "$SUBNET" "$k" "$k" "$SUBNET" "$k" "$k" >>"$1/hosts"
  done
  printf '%s\n' "$PARTITIONS" >>"$1/slurm.conf"
}
configure() {
  local new
  new=$(mktemp -d "$DIR/etc.XXXXXX")
  write_config "$new"
  if ! cmp -s "$new/slurm.conf" "$SLURM_CONF" || ! cmp -s "$new/gres.conf" "$DIR/etc/gres.conf"; then
    if [[ -e $SLURM_CONF ]]; then
      log "other settings than before: starting afresh"
      stop_all
      rm -rf "${DIR:?}"/{state,spool,tmp,dev}
    fi
    mv "$new"/* "$DIR/etc/"
  fi
  rm -rf "$new"
}

# Daemons.

node_up() { # K; its daemon must live in the node's present network
  alive "n$1" || return 1
  [[ $(stat -Lc %i "/proc/$(pid_of "n$1")/ns/net") == $(stat -Lc %i "/run/netns/$(space "$1")") ]]
}
start_node() { # K
  local own
  own="hostname n$1 && mount --bind '$DIR/etc/hosts' /etc/hosts && mount --bind '$DIR/etc/resolv.conf' /etc/resolv.conf"
  spawn "n$1" nsenter --net="/run/netns/$(space "$1")" unshare --uts --mount --propagation=private \
    sh -c "$own && exec slurmd -D -N n$1"
}
start_munge() {
  rm -f "$DIR"/run/munge.socket*
  spawn munged munged --foreground --force --key-file="$DIR/etc/munge.key" --socket="$DIR/run/munge.socket" \
    --pid-file="$DIR/run/munged.pid" --seed-file="$DIR/run/munged.seed" --log-file="$DIR/log/munged.log"
  for ((i = 0; i < 100; i++)); do
    munge -S "$DIR/run/munge.socket" -n >/dev/null 2>&1 && return
    sleep 0.05
  done
  die "munged did not start, see $DIR/log/munged.out"
}
start_control() {
  spawn slurmctld slurmctld -D
  for ((i = 0; i < 100; i++)); do
    scontrol ping 2>/dev/null | grep -q ' UP' && return
    alive slurmctld || break
    sleep 0.05
  done
  die "slurmctld did not start, see $DIR/log/slurmctld.log"
}
usable() {
  local states='^(idle|mixed|allocated|completing)$'
  [[ $(sinfo -h -N -p main -o %T 2>/dev/null | grep -cE "$states") == "$NODES" ]]
}
node_names() { for path in "$DIR"/run/n*.proc; do [[ ! -e $path ]] || basename "$path" .proc; done; }
end_nodes() {
  local name
  for name in $(node_names); do if alive "$name"; then kill -TERM "$(pid_of "$name")" || true; fi; done
  for name in $(node_names); do end "$name"; done
}
cancel_jobs() {
  timeout 10 squeue -h -o %A | sort -u | xargs -r timeout 10 scancel 2>/dev/null || true
  for ((i = 0; i < 100; i++)); do
    [[ -n $(timeout 5 squeue -h 2>/dev/null) ]] || return 0
    sleep 0.1
  done
}
end_daemons() {
  end_nodes
  end slurmctld
  end munged
}
end_strays() { # processes of this cluster's jobs that escaped their daemon
  local path pid
  for path in /proc/[0-9]*; do
    pid=${path#/proc/}
    [[ $pid != "$$" ]] || continue
    tr '\0' '\n' 2>/dev/null <"$path/environ" | grep -qxF "SLURM_CONF=$SLURM_CONF" || continue
    tr '\0' '\n' 2>/dev/null <"$path/environ" | grep -q '^SLURM_JOB_ID=' || continue
    log "ending stray process $pid: $(tr '\0' ' ' 2>/dev/null <"$path/cmdline" | cut -c1-80)"
    kill -KILL "$pid" 2>/dev/null || true
  done
}
stop_all() {
  if alive slurmctld; then cancel_jobs; fi
  end_nodes
  end slurmctld
  end_strays
  end munged
  network_down
}

# Verbs.

lock() {
  mkdir -p "$DIR"
  exec 9>"$DIR/.lock"
  flock -w 120 9 || die "another call holds $DIR/.lock"
}
up() {
  local k asked=$ID
  [[ $(id -u) == 0 ]] || die "root is needed: slurmd makes namespaces and switches users"
  lock
  mkdir -p "$DIR"/{etc,run,log}
  chmod 755 "$DIR" "$DIR/run"
  install_packages
  configure
  use_id "$asked"
  mkdir -p "$DIR"/{state,dev}
  for ((k = 1; k <= NODES; k++)); do mkdir -p "$DIR/spool/n$k" "$DIR/tmp/n$k"; done
  for ((k = 0; k < GPUS; k++)); do ln -sfn /dev/null "$DIR/dev/nvidia$k"; done
  if [[ ! -s $DIR/etc/munge.key ]]; then (umask 077 && head -c 1024 /dev/urandom >"$DIR/etc/munge.key"); fi
  network_up
  # What a start that failed left running would be in the way of the next; a network may be another cluster's.
  alive munged || alive slurmctld || trap end_daemons EXIT
  alive munged || start_munge
  alive slurmctld || start_control
  for ((k = 1; k <= NODES; k++)); do
    if ! node_up "$k"; then
      end "n$k"
      start_node "$k"
    fi
  done
  for ((k = 0; k < 300; k++)); do
    usable && break
    sleep 0.1
  done
  usable || die "not all nodes became usable: $(sinfo -h -N -o '%N %T %E;'); see $DIR/log"
  echo "export SLURM_CONF=$SLURM_CONF" >"$DIR/env.sh"
  trap - EXIT
  log "$NODES nodes of $CPUS CPUs and $GPUS GPUs are up"
  echo ". $DIR/env.sh"
}
down() {
  [[ -d $DIR ]] || return 0
  lock
  stop_all
  if ((PURGE)) && [[ -e $SLURM_CONF ]]; then
    rm -rf "${DIR:?}"/{etc,run,log,state,spool,tmp,dev,env.sh,.lock}
    rmdir "$DIR" 2>/dev/null || true
  fi
  log down
}
status() {
  local k name bad=0
  [[ -e $SLURM_CONF ]] || die "no cluster in $DIR"
  NODES=$(grep -c '^NodeName=' "$SLURM_CONF")
  local daemons=(munged slurmctld)
  for ((k = 1; k <= NODES; k++)); do daemons+=("n$k"); done
  for name in "${daemons[@]}"; do
    if alive "$name"; then
      printf '%-10s up, process %s\n' "$name" "$(pid_of "$name")"
    else
      printf '%-10s DOWN\n' "$name"
      bad=1
    fi
  done
  if alive slurmctld; then sinfo -N -p main && squeue; fi
  ((bad == 0)) && usable
}

case $VERB in
  up | down | status) "$VERB" ;;
  env) echo "export SLURM_CONF=$SLURM_CONF" ;;
  *) usage && exit 2 ;;
esac
