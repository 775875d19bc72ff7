"""The mechanism driver: partitions of a UFM follow Neutron's networks and ports.

    network created     its partition is claimed; if the P_Key is somebody else's, there is no such network
    port bound          its GUID comes in, then the port is ACTIVE: a provisioning block holds it until then
    port changed        another adapter, another client-id: the old GUID goes, the new one comes
    port unbound        its GUID goes
    network deleted     its partition goes

Precommit methods touch Neutron's database and nothing else. A UFM that refuses is an error for whoever asked; one that
is away is none for ports: they stay DOWN, and `resync` brings what is missing and takes away what should have gone.
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
from weft.clouds.partitions import Partition, Taken, admit, claim, expel, is_away, release
from weft.errors import ConfigError, WeftError
from weft.ids import Guid
from weft.tenants.drivers.ufm_rest import UfmClient

LOG = log.getLogger(__name__)
# Nova passes a virtual function on, as it does for networking-mlnx, whose agent gives it its GUID.
_VIF_TYPES = {BARE_METAL: portbindings.VIF_TYPE_OTHER} | dict.fromkeys(MACHINES, "ib_hostdev")


class BadPort(exceptions.BadRequest):  # type: ignore[misc]
    message = "%(reason)s"


class PKeyTaken(exceptions.Conflict):  # type: ignore[misc]
    message = "%(reason)s"


class UfmTrouble(exceptions.ServiceUnavailable):  # type: ignore[misc]
    message = "%(reason)s"


class WeftMechanismDriver(api.MechanismDriver):  # type: ignore[misc]
    connectivity = portbindings.CONNECTIVITY_L2  # a port without an address is in its partition too

    def initialize(self) -> None:
        options.register(cfg.CONF)
        given = cfg.CONF.ml2_weft
        if not given.ufm_url or not given.physical_networks:
            raise ConfigError("[ml2_weft] needs ufm_url and physical_networks, those that are InfiniBand")
        self.rules = Rules(frozenset(given.physical_networks), given.prefix, given.ip_over_ib, given.index0)
        self.ufm = UfmClient(
            given.ufm_url,
            token=given.ufm_token,
            user=given.ufm_user,
            password=given.ufm_password,
            ca_file=given.ufm_ca_file,
            timeout_s=given.ufm_timeout,
        )

    def get_workers(self) -> list[ResyncWorker]:
        interval_s = cfg.CONF.ml2_weft.resync_interval
        return [ResyncWorker(self.ufm, self.rules, interval_s)] if interval_s else []

    # -- networks -----------------------------------------------------------------------------------------------------

    def create_network_precommit(self, context: Any) -> None:
        _told(lambda: self._partition(context))

    def create_network_postcommit(self, context: Any) -> None:
        if partition := self._partition(context):
            _told(lambda: claim(self.ufm, partition))

    def delete_network_postcommit(self, context: Any) -> None:
        if partition := self._partition(context):
            _leave_to_resync(lambda: release(self.ufm, partition))

    # -- ports --------------------------------------------------------------------------------------------------------

    def bind_port(self, context: Any) -> None:
        port = context.current
        if _told(lambda: guid_of(port)) is None:
            return  # for other drivers; without any, Neutron says that the binding failed
        for segment in context.segments_to_bind:
            if self.rules.p_key([segment]) is not None:
                details = {"physical_network": segment[api.PHYSICAL_NETWORK], portbindings.CAP_PORT_FILTER: False}
                context.set_binding(segment[api.ID], _VIF_TYPES[port[portbindings.VNIC_TYPE]], details)
                return

    def create_port_precommit(self, context: Any) -> None:
        if self._partition(context.network):
            _told(lambda: guid_of(context.current))  # a client-id that is none is refused before there is a port

    def update_port_precommit(self, context: Any) -> None:
        if not self._partition(context.network):
            return
        if _what_says_it(context.current) != _what_says_it(context.original):
            _told(lambda: guid_of(context.current))
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
            LOG.info("Port %s: %s is in %s", port_id, Guid(now), partition.name)
            provisioning_blocks.provisioning_complete(context.plugin_context, port_id, resources.PORT, ENTITY)

    def delete_port_postcommit(self, context: Any) -> None:
        partition, guid = self._partition(context.network), member_of(context.current)
        if partition and guid is not None:
            _leave_to_resync(lambda: expel(self.ufm, partition, [guid]))

    def _partition(self, network: Any) -> Partition | None:
        return self.rules.partition(network.current["id"], network.network_segments)


def _what_says_it(port: Any) -> tuple[Any, ...]:
    """Whose port it is: looked at when it changes. What was there before is no reason to refuse a change of status."""
    return tuple(port.get(key) for key in (portbindings.VNIC_TYPE, portbindings.PROFILE, "extra_dhcp_opts"))


def _told(do: Callable[[], Any]) -> Any:
    """Whoever asked hears what is wrong, with the status that says whose fault it is."""
    try:
        return do()
    except ConfigError as error:
        raise BadPort(reason=str(error)) from error
    except Taken as error:
        raise PKeyTaken(reason=str(error)) from error
    except WeftError as error:
        raise UfmTrouble(reason=str(error)) from error


def _leave_to_resync(do: Callable[[], Any]) -> bool:
    """Was it done? Not yet, if the UFM is away."""
    try:
        _told(do)
    except UfmTrouble as trouble:
        if not is_away(trouble.__cause__):
            raise
        LOG.error("%s\n  It is tried again every %s s.", trouble, cfg.CONF.ml2_weft.resync_interval)
        return False
    return True
