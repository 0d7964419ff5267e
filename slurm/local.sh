#!/usr/bin/env bash
# local.sh - a real SLURM cluster of virtual nodes on one machine (no systemd).
#
#   local.sh up      bring the cluster up (idempotent; repairs dead daemons)
#   local.sh down    cancel jobs, stop our daemons by pid (--purge: drop state)
#   local.sh status  daemons, nodes, queue; exit 0 only when every node is usable
#   local.sh env     print 'export SLURM_CONF=...' for eval
#
# Options (also as environment variables):
#   -d DIR    SLURM_LOCAL_DIR    state directory, <= 60 characters [${TMPDIR:-/tmp}/slurm-local]
#   -n N      SLURM_LOCAL_NODES  virtual nodes            [6]
#   -c N      SLURM_LOCAL_CPUS   (fake) CPUs per node     [8]
#   -g N      SLURM_LOCAL_GPUS   (fake) GPUs per node     [8]
#   -t TYPE   SLURM_LOCAL_GTYPE  GPU gres type            [h100]
#   -m MB     SLURM_LOCAL_MEM    (fake) memory per node   [64000]
#   -i ID     SLURM_LOCAL_ID     0..99: ports/subnet, for several clusters at once [0]
#   --net host|netns|auto        SLURM_LOCAL_NET          [auto]
#               netns: every node has its own IP, hostname and port space (needs
#               CAP_NET_ADMIN+CAP_SYS_ADMIN); host: all nodes share the machine's
#   --pmix    also install libpmix-dev, so that 'srun --mpi=pmix' works
#   --system  link /etc/slurm/slurm.conf, so that no SLURM_CONF is needed
#   --no-install   never call apt-get
set -euo pipefail

DIR=${SLURM_LOCAL_DIR:-${TMPDIR:-/tmp}/slurm-local}
NODES=${SLURM_LOCAL_NODES:-6} CPUS=${SLURM_LOCAL_CPUS:-8} GPUS=${SLURM_LOCAL_GPUS:-8}
GTYPE=${SLURM_LOCAL_GTYPE:-h100} MEM=${SLURM_LOCAL_MEM:-64000}
ID=${SLURM_LOCAL_ID:-0} NET=${SLURM_LOCAL_NET:-auto}
PMIX=0 SYSTEM=0 INSTALL=1 PURGE=0

log() { printf 'slurm-local: %s\n' "$*" >&2; }
die() { log "error: $*"; exit 1; }
usage() { sed -n '2,/^set -euo/{/^set/d;s/^# \{0,1\}//;p}' "$0"; }

VERB=${1:-}; if [ $# -gt 0 ]; then shift; fi
while [ $# -gt 0 ]; do
  case $1 in
    -d) DIR=$2; shift 2;;   -n) NODES=$2; shift 2;; -c) CPUS=$2; shift 2;;
    -g) GPUS=$2; shift 2;;  -t) GTYPE=$2; shift 2;; -m) MEM=$2; shift 2;;
    -i) ID=$2; shift 2;;    --net) NET=$2; shift 2;;
    --pmix) PMIX=1; shift;; --system) SYSTEM=1; shift;;
    --no-install) INSTALL=0; shift;; --purge) PURGE=1; shift;;
    *) usage >&2; die "unknown option $1";;
  esac
done
DIR=$(realpath -m "$DIR")
[ "$DIR" != / ] || die "-d / is not a state directory"
# unix sockets live below DIR (munge, slurmstepd, pmix): sun_path is 108 bytes
[ ${#DIR} -le 60 ] || die "state directory path too long (${#DIR} > 60 characters): $DIR"
for v in NODES CPUS GPUS MEM ID; do
  [[ ${!v} =~ ^[0-9]+$ ]] || die "$v is not a number: ${!v}"
done
[ "$NODES" -ge 1 ] && [ "$NODES" -le 64 ] && [ "$ID" -le 99 ] || die "NODES 1..64, ID 0..99"

export SLURM_CONF=$DIR/etc/slurm.conf

# what the cluster in DIR was brought up with (empty when there is none)
saved() { sed -n "s/^# written by local.sh; .*\\b$1=\\([a-z0-9]*\\).*/\\1/p" "$SLURM_CONF" 2>/dev/null || true; }
set_id() { ID=$1; BR=slbr$ID SUBNET=10.213.$ID CTLD_PORT=$((20000 + ID * 100)) D_PORT=$((20001 + ID * 100)); }

# ---- processes: a pid file holds "pid starttime", so a reused pid is never signalled
started() { local s; s=$(cat "/proc/$1/stat" 2>/dev/null) || return 1; s=${s##*) }; set -- $s; echo "${20}"; }
alive() { # name
  local pid st now; read -r pid st 2>/dev/null <"$DIR/run/$1.pidx" || return 1
  now=$(started "$pid") && [ "$now" = "$st" ] || return 1
  [[ $(cat "/proc/$pid/stat") != *") Z "* ]]
}
pid_of() { cut -d' ' -f1 "$DIR/run/$1.pidx"; }
spawn() { # name command...   (the command must exec in place: no forking launcher)
  local name=$1; shift
  setsid "$@" >"$DIR/log/$name.out" 2>&1 </dev/null 9>&- &
  local pid=$!
  disown "$pid" 2>/dev/null || true
  echo "$pid $(started "$pid")" >"$DIR/run/$name.pidx"
}
stop() { # name [seconds]
  alive "$1" || { rm -f "$DIR/run/$1.pidx"; return 0; }
  local pid i; pid=$(pid_of "$1"); kill -TERM "$pid" 2>/dev/null || true
  for ((i = 0; i < ${2:-5} * 20; i++)); do alive "$1" || break; sleep 0.05; done
  alive "$1" && { log "$1 (pid $pid) ignored TERM, KILL"; kill -KILL "$pid" 2>/dev/null || true; }
  rm -f "$DIR/run/$1.pidx"
}

need_packages() {
  local p missing=()
  for p in slurmctld:slurmctld slurmd:slurmd sbatch:slurm-client munged:munge; do
    command -v "${p%%:*}" >/dev/null || missing+=("${p##*:}")
  done
  if [ $PMIX = 1 ]; then ls /usr/lib/*/pmix2/lib/libpmix.so >/dev/null 2>&1 || missing+=(libpmix-dev); fi
  [ ${#missing[@]} -eq 0 ] && return 0
  [ $INSTALL = 1 ] || die "missing packages: ${missing[*]}"
  [ "$(id -u)" = 0 ] || die "missing packages (run as root, or install them): ${missing[*]}"
  log "installing ${missing[*]}"
  local policy=/usr/sbin/policy-rc.d ours=0
  if [ ! -e $policy ]; then ours=1; printf '#!/bin/sh\nexit 101\n' >$policy; chmod 755 $policy; fi
  local rc=0
  { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq \
      --no-install-recommends "${missing[@]}"; } >"$DIR/log/apt.log" 2>&1 </dev/null || rc=$?
  if [ $ours = 1 ]; then rm -f $policy; fi
  # daemons look for PMIx when they start
  if [ $PMIX = 1 ]; then local f; for f in "$DIR"/run/n*.pidx; do if [ -e "$f" ]; then f=${f##*/}; stop "${f%.pidx}"; fi; done; fi
  [ $rc = 0 ] || { tail -5 "$DIR/log/apt.log" >&2; die "apt-get failed, see $DIR/log/apt.log"; }
}

can_netns() {
  command -v ip nsenter unshare >/dev/null 2>&1 || return 1
  ip netns add "slprobe$$" 2>/dev/null || return 1
  local ok=0
  ip link add "slp$$" type veth peer name eth0 netns "slprobe$$" 2>/dev/null &&
    ip link del "slp$$" && ip link add "slp$$" type bridge 2>/dev/null && ip link del "slp$$" || ok=1
  ip netns del "slprobe$$"
  [ $ok = 0 ] && unshare --uts --mount true 2>/dev/null
}

ns() { echo "sl$ID-n$1"; }
addr() { if [ "$NET" = netns ]; then echo "$SUBNET.$1"; else echo 127.0.0.1; fi; }
port() { if [ "$NET" = netns ]; then echo "$D_PORT"; else echo $((D_PORT + $1)); fi; }

net_up() {
  [ "$NET" = netns ] || return 0
  local k v
  ip link show "$BR" >/dev/null 2>&1 || { ip link add "$BR" type bridge; ip addr add "$SUBNET.254/24" dev "$BR"; }
  ip link set "$BR" up
  for ((k = 1; k <= NODES; k++)); do
    v=slv$ID-$k
    [ -e "/run/netns/$(ns $k)" ] || ip netns add "$(ns $k)"
    ip link show "$v" >/dev/null 2>&1 && continue
    ip link add "$v" type veth peer name eth0 netns "$(ns $k)"
    ip link set "$v" master "$BR" up
    ip -n "$(ns $k)" addr add "$SUBNET.$k/24" dev eth0
    ip -n "$(ns $k)" link set eth0 up
    ip -n "$(ns $k)" link set lo up
    ip -n "$(ns $k)" route add default via "$SUBNET.254" 2>/dev/null || true
  done
}
net_down() { # of the cluster in DIR, whose id need not be the one asked for now
  local f v want=$ID old; old=$(saved id)
  [ -n "$old" ] && [ "$(saved net)" = netns ] || return 0
  set_id "$old"
  for f in /run/netns/sl"$ID"-n*; do [ -e "$f" ] && ip netns del "${f##*/}" || true; done
  if [ -e "/sys/class/net/$BR" ]; then ip link del "$BR" || true; fi
  for v in /sys/class/net/slv"$ID"-*; do [ -e "$v" ] && ip link del "${v##*/}" 2>/dev/null || true; done
  set_id "$want"
}

write_config() { # directory
  local host ctl k out=$1
  host=$(hostname -s)
  if [ "$NET" = netns ]; then ctl=$SUBNET.254; else ctl=127.0.0.1; fi
  {
    cat <<E
# written by local.sh; net=$NET id=$ID
ClusterName=local$ID
SlurmctldHost=$host($ctl)
SlurmctldPort=$CTLD_PORT
SlurmUser=$(id -un)
SlurmdUser=$(id -un)
AuthType=auth/munge
# cred_expire also is how long a requeued job waits before it may start again (default 120)
AuthInfo=socket=$DIR/run/munge.socket,cred_expire=15
CredType=cred/munge
StateSaveLocation=$DIR/state
SlurmdSpoolDir=$DIR/spool/%n
TmpFS=$DIR/tmp/%n
SlurmctldPidFile=$DIR/run/slurmctld.pid
SlurmdPidFile=$DIR/run/slurmd.%n.pid
SlurmctldLogFile=$DIR/log/slurmctld.log
SlurmdLogFile=$DIR/log/slurmd.%n.log
SlurmctldDebug=verbose
SlurmdDebug=verbose
# no cgroups: works in containers and on cgroup v1, v2 or hybrid hosts
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=task=5
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/filetxt
JobCompLoc=$DIR/log/jobcomp.log
SwitchType=switch/none
MpiDefault=pmi2
# nodes claim more CPUs and memory than the machine has
SlurmdParameters=config_overrides
ReturnToService=2
GresTypes=gpu
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
DefMemPerCPU=$((MEM / CPUS))
# het jobs are started by the backfill scheduler only: make it run every second
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1,bf_hetjob_immediate,bf_hetjob_prio=min,sched_interval=5,sched_min_interval=0,batch_sched_delay=0
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
JobRequeue=1
# short by default, so that tests of --signal and requeue are quick (OverTimeLimit in minutes)
KillWait=5
CompleteWait=0
InactiveLimit=0
SlurmdTimeout=60
MinJobAge=86400
ReconfigFlags=KeepPartInfo
E
    for ((k = 1; k <= NODES; k++)); do
      local nh=$host; if [ "$NET" = netns ]; then nh=n$k; fi
      echo "NodeName=n$k NodeHostname=$nh NodeAddr=$(addr $k) Port=$(port $k)" \
        "CPUs=$CPUS Boards=1 SocketsPerBoard=1 CoresPerSocket=$CPUS ThreadsPerCore=1" \
        "RealMemory=$MEM$([ "$GPUS" -gt 0 ] && echo " Gres=gpu:$GTYPE:$GPUS") State=UNKNOWN"
    done
    echo "PartitionName=main Nodes=ALL Default=YES DefaultTime=60 MaxTime=INFINITE State=UP PriorityTier=10"
    echo "PartitionName=low Nodes=ALL DefaultTime=60 MaxTime=INFINITE State=UP PriorityTier=1"
  } >"$out/slurm.conf"
  : >"$out/gres.conf"
  if [ "$GPUS" -gt 0 ]; then
    # File= must name device nodes for CUDA_VISIBLE_DEVICES to be set; links to /dev/null will do
    echo "NodeName=n[1-$NODES] Name=gpu Type=$GTYPE File=$DIR/dev/nvidia$([ "$GPUS" -gt 1 ] && echo "[0-$((GPUS - 1))]" || echo 0)" >"$out/gres.conf"
  fi
  { echo "127.0.0.1 localhost"
    if [ "$NET" = netns ]; then
      for ((k = 1; k <= NODES; k++)); do echo "$SUBNET.$k n$k"; echo "::ffff:$SUBNET.$k n$k"; done
      echo "$SUBNET.254 $host"
    fi; } >"$out/hosts"
  : >"$out/resolv.conf" # no name server: a lookup fails at once instead of after 10 s
}

# a node's slurmd must also live in the node's present network namespace
node_alive() { # k
  alive "n$1" || return 1
  [ "$NET" != netns ] || [ "$(stat -Lc %i "/proc/$(pid_of "n$1")/ns/net")" = "$(stat -Lc %i "/run/netns/$(ns "$1")" 2>/dev/null)" ]
}

start_slurmd() { # k
  local k=$1 common="exec slurmd -D -N n$1"
  if [ "$NET" = netns ]; then
    # enter the node's network, then private hostname and mounts; every step execs in place
    spawn "n$k" nsenter --net="/run/netns/$(ns $k)" unshare --uts --mount --propagation=private \
      sh -c "hostname n$k && mount --bind '$DIR/etc/hosts' /etc/hosts && mount --bind '$DIR/etc/resolv.conf' /etc/resolv.conf && $common"
  else
    spawn "n$k" sh -c "$common"
  fi
}

nodes_ready() { [ "$(sinfo -h -N -p main -o '%T' 2>/dev/null | grep -cE '^(idle|mixed|allocated|completing)$')" = "$NODES" ]; }

lock() { mkdir -p "$DIR"; exec 9>"$DIR/.lock"; flock -w 120 9 || die "another local.sh holds $DIR/.lock"; }

up() {
  [ "$(id -u)" = 0 ] || die "run as root (slurmd must switch users; netns needs CAP_NET_ADMIN)"
  local t0=$EPOCHREALTIME k i
  lock
  mkdir -p "$DIR"/{etc,run,log,state,spool,tmp,dev}
  chmod 755 "$DIR" "$DIR/run"
  need_packages
  local port_user; port_user=$(ss -Hltnp "sport = :$CTLD_PORT" 2>/dev/null || true)
  if [ -n "$port_user" ] && ! alive slurmctld; then die "port $CTLD_PORT is taken (another cluster with -i $ID?): $port_user"; fi
  if [ "$NET" = auto ]; then
    NET=$(saved net)
    if [ -z "$NET" ]; then can_netns && NET=netns || NET=host; fi
  fi
  local new; new=$(mktemp -d "$DIR/etc.XXXXXX"); write_config "$new"
  if ! { cmp -s "$new/slurm.conf" "$DIR/etc/slurm.conf" && cmp -s "$new/gres.conf" "$DIR/etc/gres.conf"; }; then
    if [ -e "$DIR/etc/slurm.conf" ]; then log "configuration changed: restarting with fresh state"; stop_all; rm -rf "${DIR:?}"/{state,spool,tmp,dev}; fi
    mv "$new"/* "$DIR/etc/"
  fi
  rm -rf "$new"
  mkdir -p "$DIR"/{state,dev}
  for ((k = 1; k <= NODES; k++)); do mkdir -p "$DIR/spool/n$k" "$DIR/tmp/n$k"; done
  for ((i = 0; i < GPUS; i++)); do ln -sfn /dev/null "$DIR/dev/nvidia$i"; done
  if [ ! -s "$DIR/etc/munge.key" ]; then (umask 077; head -c 1024 /dev/urandom >"$DIR/etc/munge.key"); fi
  net_up
  if ! alive munged; then
    rm -f "$DIR"/run/munge.socket*
    spawn munged munged --foreground --force --key-file="$DIR/etc/munge.key" --socket="$DIR/run/munge.socket" \
      --pid-file="$DIR/run/munged.pid" --seed-file="$DIR/run/munged.seed" --log-file="$DIR/log/munged.log"
    for ((i = 0; i < 100; i++)); do munge -S "$DIR/run/munge.socket" -n >/dev/null 2>&1 && break; sleep 0.05; done
    munge -S "$DIR/run/munge.socket" -n >/dev/null || die "munged did not start, see $DIR/log/munged.out"
  fi
  if ! alive slurmctld; then
    spawn slurmctld slurmctld -D
    for ((i = 0; i < 100; i++)); do scontrol ping 2>/dev/null | grep -q ' UP' && break; alive slurmctld || break; sleep 0.05; done
    scontrol ping 2>/dev/null | grep -q ' UP' || { tail -3 "$DIR/log/slurmctld.out" >&2; die "slurmctld did not start, see $DIR/log/slurmctld.log"; }
  fi
  for ((k = 1; k <= NODES; k++)); do node_alive "$k" || { stop "n$k"; start_slurmd "$k"; }; done
  for ((i = 0; i < 300; i++)); do nodes_ready && break; sleep 0.1; done
  if ! nodes_ready; then
    sinfo -N -o '%N %T %E' >&2 || true
    for ((k = 1; k <= NODES; k++)); do alive "n$k" || { log "slurmd n$k is dead:"; tail -3 "$DIR/log/n$k.out" >&2; }; done
    die "nodes did not become ready"
  fi
  echo "export SLURM_CONF=$SLURM_CONF" >"$DIR/env.sh"
  if [ $SYSTEM = 1 ]; then
    mkdir -p /etc/slurm
    if [ -e /etc/slurm/slurm.conf ] && [ ! -L /etc/slurm/slurm.conf ]; then die "/etc/slurm/slurm.conf is not ours"; fi
    ln -sfn "$SLURM_CONF" /etc/slurm/slurm.conf
  fi
  log "up: $NODES nodes x $CPUS CPUs x $GPUS GPUs, net=$NET, $(awk "BEGIN{printf \"%.1f\", $EPOCHREALTIME-$t0}") s; . $DIR/env.sh"
}

stop_all() {
  local k f pid jobs
  if alive slurmctld; then
    jobs=$(timeout 5 squeue -h -o %i 2>/dev/null | wc -l || true)
    if [ "${jobs:-0}" -gt 0 ]; then
      timeout 10 scancel --full --signal=KILL --state=RUNNING --user=root 2>/dev/null || true
      timeout 10 squeue -h -o %A | sort -u | xargs -r timeout 10 scancel 2>/dev/null || true
      for ((k = 0; k < 100; k++)); do [ -z "$(timeout 5 squeue -h 2>/dev/null)" ] && break; sleep 0.1; done
    fi
  fi
  for f in "$DIR"/run/n*.pidx; do if [ -e "$f" ]; then f=${f##*/}; alive "${f%.pidx}" && kill -TERM "$(pid_of "${f%.pidx}")" || true; fi; done
  for f in "$DIR"/run/n*.pidx; do if [ -e "$f" ]; then f=${f##*/}; stop "${f%.pidx}"; fi; done
  stop slurmctld 10
  # stray step daemons and job processes of this cluster only: both marks must be in their environment
  for f in /proc/[0-9]*; do
    pid=${f#/proc/}; [ "$pid" != $$ ] || continue
    tr '\0' '\n' 2>/dev/null <"$f/environ" | grep -qxF "SLURM_CONF=$SLURM_CONF" || continue
    if tr '\0' '\n' 2>/dev/null <"$f/environ" | grep -q '^SLURM_JOB_ID=' || [[ $(tr '\0' ' ' 2>/dev/null <"$f/cmdline") == slurmstepd* ]]; then
      log "killing stray pid $pid: $(tr '\0' ' ' <"$f/cmdline" 2>/dev/null | cut -c1-80)"; kill -KILL "$pid" 2>/dev/null || true
    fi
  done
  stop munged
  net_down
}

down() {
  [ -d "$DIR" ] || { log "nothing in $DIR"; return 0; }
  lock; stop_all
  if [ "$(readlink /etc/slurm/slurm.conf 2>/dev/null)" = "$SLURM_CONF" ]; then rm -f /etc/slurm/slurm.conf; fi
  if [ $PURGE = 1 ]; then
    [ -e "$DIR/etc/slurm.conf" ] && rm -rf "${DIR:?}"/{etc,run,log,state,spool,tmp,dev,env.sh,.lock}
    rmdir "$DIR" 2>/dev/null || true
  fi
  log down
}

status() {
  local f n bad=0
  [ -e "$SLURM_CONF" ] || { echo "no cluster in $DIR"; return 3; }
  NODES=$(grep -c '^NodeName=' "$SLURM_CONF")
  for n in munged slurmctld $(seq -f 'n%g' 1 "$NODES"); do
    if alive "$n"; then printf '%-10s up   pid %s\n' "$n" "$(pid_of "$n")"; else printf '%-10s DOWN\n' "$n"; bad=1; fi
  done
  alive slurmctld || return 1
  sinfo -N -p main -o '%.6N %.10T %.5c %.8m %.14G %E'; squeue -o '%.10i %.12j %.10T %.6M %.5D %R'
  [ $bad = 0 ] && nodes_ready
}

set_id "$ID"
case $VERB in
  up) up;; down) down;; status) status;; env) echo "export SLURM_CONF=$SLURM_CONF";;
  *) usage; [ -n "$VERB" ] && exit 2 || exit 0;;
esac
