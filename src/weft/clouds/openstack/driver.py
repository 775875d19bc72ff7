"""The ML2 mechanism driver: keeps UFM's partitions in step with Neutron's networks and ports.

    network created     create its partition; if another owner has the P_Key, the network is refused
    port bound          add its GUID, then set the port ACTIVE (a provisioning block holds it until then)
    port changed        replace its GUID if the adapter or the client-id changed
    port unbound        remove its GUID
    network deleted     delete its partition

Precommit methods use Neutron's database only. If UFM refuses a call, the Neutron request fails. If UFM is unavailable,
port requests succeed: the ports stay DOWN, and `resync` repeats the call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from neutron.db import provisioning_blocks
from neutron_lib import exceptions
from neutron_lib.api.definitions import portbindings
from neutron_lib.callbacks import resources
from neutron_lib.plugins.ml2 import api
from oslo_config import cfg
from oslo_log import log

from weft.clouds.openstack import options
from weft.clouds.openstack.members import BARE_METAL, MACHINES, Rules, guid_of, member_of
from weft.clouds.openstack.resync import ENTITY, ResyncWorker
from weft.clouds.partitions import Partition, PKeyTakenError, admit, claim, expel, is_away, release
from weft.errors import ConfigError, WeftError
from weft.ids import Guid
from weft.tenants.drivers.ufm_rest import UfmClient

LOG = log.getLogger(__name__)
# Nova passes a virtual function through, as for networking-mlnx, whose agent sets its GUID.
_VIF_TYPES = {BARE_METAL: portbindings.VIF_TYPE_OTHER} | dict.fromkeys(MACHINES, "ib_hostdev")


class BadPort(exceptions.BadRequest):  # type: ignore[misc]
    message = "%(reason)s"


class PKeyTaken(exceptions.Conflict):  # type: ignore[misc]
    message = "%(reason)s"


class UfmUnavailable(exceptions.ServiceUnavailable):  # type: ignore[misc]
    message = "%(reason)s"


class WeftMechanismDriver(api.MechanismDriver):  # type: ignore[misc]
    """An ML2 mechanism driver for InfiniBand partitions."""

    connectivity = portbindings.CONNECTIVITY_L2  # ports without an IP address are members too

    def initialize(self) -> None:
        options.register(cfg.CONF)
        settings = cfg.CONF.ml2_weft
        if not settings.ufm_url or not settings.physical_networks:
            raise ConfigError("set ufm_url and physical_networks (the InfiniBand networks) in [ml2_weft]")
        self.rules = Rules(frozenset(settings.physical_networks), settings.prefix, settings.ip_over_ib, settings.index0)
        self.ufm = UfmClient(
            settings.ufm_url,
            token=settings.ufm_token,
            user=settings.ufm_user,
            password=settings.ufm_password,
            ca_file=settings.ufm_ca_file,
            timeout_s=settings.ufm_timeout,
        )

    def get_workers(self) -> list[ResyncWorker]:
        interval_s = cfg.CONF.ml2_weft.resync_interval
        return [ResyncWorker(self.ufm, self.rules, interval_s)] if interval_s else []

    # -- networks -----------------------------------------------------------------------------------------------------

    def create_network_precommit(self, context: Any) -> None:
        _convert_errors(lambda: self._partition(context))

    def create_network_postcommit(self, context: Any) -> None:
        if partition := self._partition(context):
            _convert_errors(lambda: claim(self.ufm, partition))

    def delete_network_postcommit(self, context: Any) -> None:
        if partition := self._partition(context):
            _leave_to_resync(lambda: release(self.ufm, partition))

    # -- ports --------------------------------------------------------------------------------------------------------

    def bind_port(self, context: Any) -> None:
        port = context.current
        if _convert_errors(lambda: guid_of(port)) is None:
            return  # other drivers may bind it; else Neutron reports that the binding failed
        for segment in context.segments_to_bind:
            if self.rules.p_key([segment]) is not None:
                details = {"physical_network": segment[api.PHYSICAL_NETWORK], portbindings.CAP_PORT_FILTER: False}
                context.set_binding(segment[api.ID], _VIF_TYPES[port[portbindings.VNIC_TYPE]], details)
                return

    def create_port_precommit(self, context: Any) -> None:
        if self._partition(context.network):
            _convert_errors(lambda: guid_of(context.current))  # refuse an invalid client-id before the port exists

    def update_port_precommit(self, context: Any) -> None:
        if not self._partition(context.network):
            return
        if _guid_sources(context.current) != _guid_sources(context.original):
            _convert_errors(lambda: guid_of(context.current))
        now = member_of(context.current)
        if now is not None and now != member_of(context.original):
            port_id = context.current["id"]
            provisioning_blocks.add_provisioning_component(context.plugin_context, port_id, resources.PORT, ENTITY)

    def update_port_postcommit(self, context: Any) -> None:
        partition = self._partition(context.network)
        before, now = member_of(context.original), member_of(context.current)
        if partition is None or before == now:
            return
        if before is not None:
            _leave_to_resync(lambda: expel(self.ufm, partition, [before]))
        if now is not None and _leave_to_resync(lambda: admit(self.ufm, partition, [now])):
            port_id = context.current["id"]
            LOG.info("Port %s: added %s to %s", port_id, Guid(now), partition.name)
            provisioning_blocks.provisioning_complete(context.plugin_context, port_id, resources.PORT, ENTITY)

    def delete_port_postcommit(self, context: Any) -> None:
        partition, guid = self._partition(context.network), member_of(context.current)
        if partition and guid is not None:
            _leave_to_resync(lambda: expel(self.ufm, partition, [guid]))

    def _partition(self, network: Any) -> Partition | None:
        return self.rules.partition(network.current["id"], network.network_segments)


def _guid_sources(port: Any) -> tuple[Any, ...]:
    """Return the attributes that define a port's GUID. They are validated only when they change."""
    return tuple(port.get(key) for key in (portbindings.VNIC_TYPE, portbindings.PROFILE, "extra_dhcp_opts"))


def _convert_errors(do: Callable[[], Any]) -> Any:
    """Call a function, and convert weft's errors to Neutron's."""
    try:
        return do()
    except ConfigError as error:
        raise BadPort(reason=str(error)) from error
    except PKeyTakenError as error:
        raise PKeyTaken(reason=str(error)) from error
    except WeftError as error:
        raise UfmUnavailable(reason=str(error)) from error


def _leave_to_resync(do: Callable[[], Any]) -> bool:
    """Call a function; return False if UFM is unavailable, so that `resync` repeats the call later."""
    try:
        _convert_errors(do)
    except UfmUnavailable as error:
        if not is_away(error.__cause__):
            raise
        LOG.error("%s\n  Retried every %s s.", error, cfg.CONF.ml2_weft.resync_interval)
        return False
    return True
