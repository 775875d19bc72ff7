// The bar at the top: fabric, connection, subnet manager, and the colouring of cables.

import { byId, fill, h, say } from "./dom";
import type { Measure, Store } from "./store";
import { clock, count, moment, standbys } from "./format";

const MEASURES: [Measure, string][] = [
  ["load", "Load"],
  ["errors", "Errors"],
  ["tenant", "Tenant"],
];

export function bar(store: Store): (measure: Measure) => void {
  const inputs = MEASURES.map(([measure]) => h("input", { type: "radio", name: "measure", value: measure, checked: measure === store.measure }));
  const set = (measure: Measure) => {
    store.measure = measure;
    inputs[MEASURES.findIndex(([one]) => one === measure)].checked = true;
    store.tell("measure");
  };
  inputs.forEach((input, i) => input.addEventListener("change", () => set(MEASURES[i][0])));
  fill(byId("measures"), MEASURES.map(([, text], i) => h("label", null, inputs[i], h("span", null, text))));
  store.on("model", () => {
    say(byId("spec"), store.model!.fabric.spec);
    document.title = `weft ${store.model!.fabric.spec}`;
  });
  store.on(["live", "line", "mode"], () => (showLine(store), showManager(store), showAlerts(store)));
  byId("alerts").addEventListener("click", () => store.show("overview"));
  return set;
}

function showLine(store: Store): void {
  const line = byId("line");
  if (store.mode === "model") {
    line.className = "chip model";
    say(line, "model");
    line.title = "clicks change a model, not the fabric";
    return;
  }
  if (store.mode === "past") {
    line.className = "chip past";
    say(line, `past ${moment(store.live!.t)}`);
    line.title = "a recorded state";
    return;
  }
  const why = store.isUp ? (store.live?.trouble ?? "") : store.why || "connecting";
  line.className = `chip ${why ? "poor" : "good"}`;
  say(line, why ? `no data${store.live ? ` since ${clock(store.live.t)}` : ""}` : "live");
  line.title = why ? `${why}; reconnecting` : "updated every second";
}

function showManager(store: Store): void {
  const chip = byId("manager");
  chip.hidden = !store.live;
  if (!store.live) return;
  const sm = store.live.sm;
  chip.className = `chip ${sm?.state === "master" ? "" : "poor"}`;
  say(chip, sm ? `SM ${sm.state} ${sm.host}` : "no SM answers");
  chip.title = sm ? `standby: ${standbys(sm.standby)}` : "";
}

function showAlerts(store: Store): void {
  const number = (store.live?.suspects.filter((one) => !one.acknowledged).length ?? 0) + (store.live?.drift?.length ?? 0);
  const chip = byId("alerts");
  chip.hidden = number === 0;
  chip.className = "chip alarm";
  say(chip, count(number, "alert"));
}
