#!/bin/sh
# Install the programs that judge weft from the outside, from Debian's packages. Needs root.
set -eu
packages="opensm ibsim-utils infiniband-diags ibutils tshark chromium slurmctld slurm-client g++ pkg-config libns3-dev"
missing=""
for package in $packages; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing="$missing $package"
done
if [ -z "$missing" ]; then
    echo "weft: all peers are installed: $packages"
    exit 0
fi
if ! command -v apt-get >/dev/null; then
    echo "weft: make peers needs Debian's apt-get; missing:$missing. Their tests will be skipped." >&2
    exit 1
fi
if [ "$(id -u)" != 0 ]; then
    echo "weft: make peers needs root to install:$missing. Run it with sudo; without it their tests are skipped." >&2
    exit 1
fi
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
# shellcheck disable=SC2086
apt-get install -y -qq --no-install-recommends $missing >/dev/null
echo "weft: installed$missing"
