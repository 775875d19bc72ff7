"""Check the InfiniBand ports of this node before a job: status 1 and a line for each port that is not as it should be.

python health.py --adapters 1 --rate 100
"""

import argparse
import sys

from pyverbs import enums
from pyverbs.device import Context, get_device_list

LANES = {1: 1, 2: 4, 4: 8, 8: 12, 16: 2}
LANE_GBIT_S = {1: 2.5, 2: 5, 4: 10, 8: 10, 16: 14, 32: 25, 64: 50, 128: 100}


def problems(adapters, rate_gbit_s):
    names = [device.name.decode() for device in get_device_list()]
    if len(names) != adapters:
        yield f"{len(names)} adapters instead of {adapters}: {', '.join(names)}"
    for name in names:
        port = Context(name=name).query_port(1)
        rate = LANES[port.active_width] * LANE_GBIT_S[port.active_speed]
        if port.state != enums.IBV_PORT_ACTIVE:
            yield f"{name}: port 1 is not active"
        elif rate < rate_gbit_s:
            yield f"{name}: port 1 runs at {rate:g} Gbit/s instead of {rate_gbit_s:g}"


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--adapters", type=int, required=True)
    parser.add_argument("--rate", type=float, required=True, help="Gbit/s")
    options = parser.parse_args()
    found = list(problems(options.adapters, options.rate))
    print("\n".join(found) or "healthy")
    sys.exit(bool(found))
