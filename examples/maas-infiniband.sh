#!/bin/sh
# The InfiniBand ports of a machine from /sys alone, as JSON: a commissioning script for MAAS, or to run by hand.
#
# --- Start MAAS 1.0 script metadata ---
# name: infiniband-ports
# title: InfiniBand ports and their DHCP client-ids
# description: Reads /sys; needs no lspci, no driver tools and no link.
# script_type: commissioning
# timeout: 60
# --- End MAAS 1.0 script metadata ---
set -eu
between=''
printf '['
for interface in /sys/class/net/*; do
    [ "$(cat "$interface/type" 2>/dev/null || true)" = 32 ] || continue # ARPHRD_INFINIBAND
    card=$(readlink -f "$interface/device")
    address=$(cat "$interface/address") # 20 bytes: flags, queue pair, GID; the last eight are the port's GUID
    guid=${address#????????????????????????????????????}
    printf '%s\n{"interface": "%s", "adapter": "%s", "port": %d, "pci": "%s", "id": "%s:%s", "driver": "%s", ' \
        "$between" "${interface##*/}" "$(ls "$card/infiniband")" "$(($(cat "$interface/dev_port") + 1))" \
        "${card##*/}" "$(cat "$card/vendor")" "$(cat "$card/device")" "$(basename "$(readlink "$card/driver")")"
    printf '"guid": "0x%s", "client_id": "ff:00:00:00:00:00:02:00:00:02:c9:00:%s", "link": "%s"}' \
        "$(echo "$guid" | tr -d :)" "$guid" "$(cat "$interface/operstate")"
    between=','
done
printf ']\n'
