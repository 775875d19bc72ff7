// The modules at both ends of a cable: serial number, temperature, optical power.

import { messageOf } from "../api";
import { fill, h } from "../dom";
import type { CableEnd } from "../shapes";
import type { Store } from "../store";
import { facts } from "./facts";

const EVERY_MS = 5000;

/** A section that is read every few seconds while it is refreshed; modules have no past. */
export function modulesOf(store: Store, port: string): { element: HTMLElement; refresh(): void } {
  const body = h("div", null, h("p", { class: "faint" }, "reading modules …"));
  const element = h("section", { class: "modules", "aria-label": "Modules" }, h("h3", null, "Modules"), body);
  let asked = 0;
  const read = async () => {
    try {
      const ends = await store.api.get<CableEnd[]>(`/cables?${new URLSearchParams({ port })}`);
      fill(body, ends.map((end) => h("div", null, h("h4", null, end.port), end.reason ? h("p", { class: "faint" }, end.reason) : factsOf(end))));
    } catch (error) {
      fill(body, h("p", { class: "problem" }, messageOf(error)));
    }
  };
  const refresh = () => {
    element.hidden = store.mode === "past";
    if (element.hidden || Date.now() - asked < EVERY_MS) return;
    asked = Date.now();
    void read();
  };
  return { element, refresh };
}

function factsOf(end: CableEnd): HTMLElement {
  const rows: [string, string][] = [
    ["module", `${end.form}, ${end.technology}${end.length_m === null ? "" : `, ${end.length_m} m`}`],
    ["part", `${end.vendor} ${end.part}`],
    ["serial", end.serial],
  ];
  if (end.temperature_c !== null) rows.push(["temperature", `${end.temperature_c.toFixed(1)} °C, ${end.supply_v!.toFixed(2)} V`]);
  if (end.receive_dbm.length) rows.push(["receives", powers(end.receive_dbm)], ["sends", powers(end.transmit_dbm)]);
  return facts(rows);
}

/** The range over the lanes. */
function powers(lanes: (number | null)[]): string {
  const lit = lanes.filter((power): power is number => power !== null);
  const dark = lanes.length - lit.length;
  const range = lit.length ? `${Math.min(...lit).toFixed(1)} to ${Math.max(...lit).toFixed(1)} dBm` : "";
  return [range, dark ? `${dark} of ${lanes.length} lanes without light` : ""].filter(Boolean).join(", ");
}
