"""Place a job's nodes below as few leaf switches as possible, from what `ibnetdiscover` prints.

ibnetdiscover | python placement.py 8
"""

import re
import sys
from collections import defaultdict


def leaves(listing):
    """Return the hosts of each leaf switch, from the links of switches to channel adapters."""
    found, switch = defaultdict(set), ""
    for line in listing.splitlines():
        if match := re.match(r'Switch\s+\d+\s+"[^"]+"\s+#\s+"([^"]+)"', line):
            switch = match[1]
        elif match := re.match(r'\[\d+\]\s+"H-[^"]+"\[\d+\].*#\s+"([^"]+)"', line):
            found[switch].add(match[1].split()[0])
        elif not line.startswith("["):
            switch = switch if line else ""
    return dict(found)


def place(listing, count):
    """Return the hosts of a job: of the smallest leaf that is large enough, else of the largest ones."""
    groups = sorted(leaves(listing).values(), key=lambda hosts: (len(hosts), sorted(hosts)))
    for hosts in groups:
        if len(hosts) >= count:
            return sorted(hosts)[:count]
    hosts = [host for group in reversed(groups) for host in sorted(group)]
    if len(hosts) < count:
        raise SystemExit(f"placement: {count} hosts are wanted and {len(hosts)} are connected")
    return hosts[:count]


if __name__ == "__main__":
    print(*place(sys.stdin.read(), int(sys.argv[1])))
