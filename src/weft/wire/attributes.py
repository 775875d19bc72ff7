"""From the bytes of a MAD to the format of its class, and to that of its attribute."""

from __future__ import annotations

from weft.wire import cc, cm, perf, sa, smp
from weft.wire.fields import Buffer
from weft.wire.format import Format, Malformed
from weft.wire.mad import MAD_BYTES, Mad, MgmtClass, PlainMad, VendorMad

CLASSES: dict[int, tuple[type[Format], dict[int, type[Format]]]] = {
    MgmtClass.SUBN_LID_ROUTED: (smp.Smp, smp.ATTRIBUTES),
    MgmtClass.SUBN_DIRECTED_ROUTE: (smp.DirectedSmp, smp.ATTRIBUTES),
    MgmtClass.SUBN_ADM: (sa.SaMad, sa.ATTRIBUTES),
    MgmtClass.PERF: (PlainMad, perf.ATTRIBUTES),
    MgmtClass.COM_MGT: (cm.CmMad, cm.ATTRIBUTES),
    MgmtClass.CONG_CTRL: (cc.CcMad, cc.ATTRIBUTES),
    MgmtClass.OPENIB_PING: (VendorMad, {}),
    MgmtClass.OPENIB_SYSSTAT: (VendorMad, {}),
}


def parse_mad(buffer: Buffer) -> tuple[Format, Format | None]:
    """Parse a MAD in the format of its class, and its attribute; None if weft has no format for it.

    A table of the SA carries many records: this is the first; `weft.wire.sa_query` reads them all.
    """
    if len(buffer) != MAD_BYTES:
        raise Malformed(f"a MAD has {MAD_BYTES} bytes, not {len(buffer)}")
    form, attributes = CLASSES.get(Mad.mgmt_class.get(buffer), (Mad, {}))
    mad, number = form.unpack(buffer), Mad.attribute_id.get(buffer)
    if isinstance(mad, cc.CcMad) and number == cc.CcAttribute.CONGESTION_LOG:
        return mad, cc.congestion_log(mad)
    attribute = attributes.get(number)
    return mad, attribute.unpack(form.fields["data"].get(mad.raw)) if attribute else None
