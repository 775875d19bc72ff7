"""The parts of Neutron that weft's driver imports, for tests without Neutron; tests/interop runs Neutron itself."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest


class _Error(Exception):
    message = ""

    def __init__(self, **words: str) -> None:
        super().__init__(self.message % words)


class _Worker:
    def __init__(self, desc: str) -> None:
        self.desc = desc

    def start(self, **parameters: Any) -> None:
        """Start as Neutron's workers do."""


class Neutron:
    """A stand-in for Neutron: networks, ports, its log, and the ports whose provisioning waits."""

    def __init__(self, **settings: object) -> None:
        self.networks: list[dict[str, Any]] = []
        self.ports: list[dict[str, Any]] = []
        self.waiting: list[str] = []
        self.errors: list[str] = []
        values = {"ufm_token": "t", "ufm_user": None, "ufm_password": None, "ufm_ca_file": None, "ufm_timeout": 5.0}
        values |= {"prefix": "neutron", "ip_over_ib": True, "index0": False, "resync_interval": 60} | settings
        self.settings = SimpleNamespace(**values)

    def get_networks(self, admin: object) -> list[dict[str, Any]]:
        return self.networks

    def get_ports(self, admin: object, filters: dict[str, list[str]]) -> list[dict[str, Any]]:
        return [port for port in self.ports if port["network_id"] in filters["network_id"]]

    def modules(self) -> dict[str, dict[str, Any]]:
        log = SimpleNamespace(info=lambda *words: None, error=lambda text, *words: self.errors.append(text % words))
        log.exception = log.error
        kinds = ("BadRequest", "Conflict", "ServiceUnavailable")
        bindings = {"VNIC_TYPE": "binding:vnic_type", "PROFILE": "binding:profile", "CAP_PORT_FILTER": "port_filter"}
        kinds_of_options = ("StrOpt", "FloatOpt", "ListOpt", "BoolOpt", "IntOpt")
        options = dict.fromkeys(kinds_of_options, lambda name, **rest: SimpleNamespace(name=name, **rest))
        configuration = SimpleNamespace(register_opts=lambda *words, **rest: None, ml2_weft=self.settings)
        return {
            "neutron.db.provisioning_blocks": {
                "add_provisioning_component": lambda admin, port, kind, entity: self.waiting.append(port),
                "provisioning_complete": lambda admin, port, kind, entity: self.waiting.remove(port),
            },
            "neutron_lib.exceptions": {kind: type(kind, (_Error,), {}) for kind in kinds},
            "neutron_lib.api.definitions.portbindings": {
                "VIF_TYPE_OTHER": "other",
                "CONNECTIVITY_L2": "l2",
                **bindings,
            },
            "neutron_lib.callbacks.resources": {"PORT": "port"},
            "neutron_lib.plugins.ml2.api": {
                "MechanismDriver": object,
                "ID": "id",
                "PHYSICAL_NETWORK": "physical_network",
            },
            "neutron_lib.plugins.directory": {"get_plugin": lambda: self},
            "neutron_lib.context": {"get_admin_context": lambda: None},
            "neutron_lib.worker": {"BaseWorker": _Worker},
            "oslo_config.cfg": {"CONF": configuration, "ConfigOpts": object, "Opt": object, **options},
            "oslo_log.log": {"getLogger": lambda name: log},
        }

    def driver(self, patch: pytest.MonkeyPatch) -> Any:
        """Import and return weft's driver."""
        modules: dict[str, ModuleType] = {}
        for path, contents in self.modules().items():
            names = path.split(".")
            for depth in range(1, len(names) + 1):
                parent, name = ".".join(names[: depth - 1]), ".".join(names[:depth])
                module = modules.setdefault(name, ModuleType(name))
                if parent:
                    setattr(modules[parent], names[depth - 1], module)
            vars(modules[path]).update(contents)
        for path, module in modules.items():
            patch.setitem(sys.modules, path, module)
        for name in ("options", "resync", "driver"):
            patch.delitem(sys.modules, f"weft.clouds.openstack.{name}", raising=False)
        return importlib.import_module("weft.clouds.openstack.driver")
