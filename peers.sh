#!/bin/sh
# Install the programs against which the tests check weft, from Debian's packages. Needs root.
set -eu
packages="opensm ibsim-utils infiniband-diags ibutils tshark chromium slurmctld slurmd slurm-client g++ pkg-config libns3-dev
    libibverbs1 librdmacm1 librdmacm-dev rdmacm-utils perftest ibverbs-providers ibverbs-utils libibverbs-dev
    mmdebstrap debian-archive-keyring ucx-utils qperf libfabric-bin openmpi-bin libopenmpi-dev mpich libmpich-dev libnuma1 libcurl4 iproute2 postgresql prometheus prometheus-node-exporter"
# rdma-core's tests lie in its documentation, which slim systems leave out of what they install: these are only unpacked.
documents="rdma-core python3-pyverbs"
folder="${XDG_CACHE_HOME:-$HOME/.cache}/weft/peers"
missing=""
for package in $packages; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing="$missing $package"
done
unread=""
for package in $documents; do
    [ -e "$folder/$package.done" ] || unread="$unread $package"
done
if [ -z "$missing$unread" ]; then
    echo "weft: all peers are installed:" $packages $documents
    exit 0
fi
if ! command -v apt-get >/dev/null; then
    echo "weft: make peers needs Debian's apt-get; missing:$missing$unread. Their tests will be skipped." >&2
    exit 1
fi
if [ "$(id -u)" != 0 ]; then
    echo "weft: make peers needs root to install:$missing$unread. Run it with sudo; without it their tests are skipped." >&2
    exit 1
fi
export DEBIAN_FRONTEND=noninteractive
wait_for_lock="-o DPkg::Lock::Timeout=300" # another package manager may be at work
# shellcheck disable=SC2086
apt-get $wait_for_lock update -qq
if [ -n "$missing" ]; then
    # Debian starts servers when it installs them, and with the machine from then on; tests start their own.
    if [ ! -e /usr/sbin/policy-rc.d ]; then
        trap 'rm -f /usr/sbin/policy-rc.d' EXIT
        printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d
        chmod +x /usr/sbin/policy-rc.d
    fi
    # shellcheck disable=SC2086
    apt-get $wait_for_lock install -y -qq --no-install-recommends $missing >/dev/null
    for service in prometheus prometheus-node-exporter; do
        case "$missing" in *" $service"*) ! [ -d /run/systemd/system ] || systemctl disable -q "$service" ;; esac
    done
fi
for package in $unread; do
    download=$(mktemp -d)
    (cd "$download" && apt-get download -qq -o APT::Sandbox::User=root "$package" && dpkg-deb -x ./*.deb tree)
    mkdir -p "$folder"
    cp -a "$download/tree/." "$folder"
    rm -r "$download"
    touch "$folder/$package.done"
done
echo "weft: installed$missing$unread"
