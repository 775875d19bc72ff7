#!/usr/bin/env python3
"""A stand-in for cmk, CloudStack's command line: checks the parameters of API calls and answers in its format.

Names of parameters and of answers are those of CloudStack 4.23's API classes (createExtension, listExtensions,
registerExtension, listPhysicalNetworks, listNetworkServiceProviders, updateNetworkServiceProvider). Each call
is appended as a line of JSON to the file named by CMK_LOG.
"""

import json
import os
import sys

PARAMETERS = {  # command -> required, optional; details are pairs
    "createExtension": ({"name", "type"}, {"description", "details"}),
    "listExtensions": (set(), {"name", "id", "details"}),
    "registerExtension": ({"extensionid", "resourceid", "resourcetype"}, {"details"}),
    "listPhysicalNetworks": (set(), {"name", "id", "zoneid"}),
    "listNetworkServiceProviders": (set(), {"name", "physicalnetworkid", "state"}),
    "updateNetworkServiceProvider": ({"id"}, {"state", "servicelist"}),
}
ANSWERS = {
    "listExtensions": {"extension": [{"id": "ext-1", "name": "weft", "path": os.environ["CMK_FOLDER"]}]},
    "listPhysicalNetworks": {"physicalnetwork": [{"id": "net-1", "name": "ib"}]},
    "listNetworkServiceProviders": {"networkserviceprovider": [{"id": "nsp-1", "name": "weft"}]},
}
command, *words = sys.argv[1:]
given = dict(word.split("=", 1) for word in words)
names = {name.partition("[")[0] for name in given}
required, optional = PARAMETERS[command]
if not required <= names <= required | optional:
    sys.exit(f"cmk: {command} takes {sorted(required)} and {sorted(optional)}, got {sorted(names)}")
with open(os.environ["CMK_LOG"], "a", encoding="utf-8") as log:
    print(json.dumps([command, given]), file=log)
print(json.dumps({"count": 1, **ANSWERS.get(command, {})}))
