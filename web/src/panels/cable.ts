// The panel of a cable: its load, its faults, and buttons to break, degrade and repair it.

import { messageOf, save } from "../api";
import { fill, h } from "../dom";
import { fits } from "../model";
import type { Store } from "../store";
import { percent } from "../format";
import { changesOf } from "./changes";
import { facts } from "./facts";
import { modulesOf } from "./modules";
import { removeButton } from "./whatif";

const CAPTURE_S = 5;
const FAULTS: [string, Record<string, unknown>][] = [
  ["bit error rate 1e-12", { ber: 1e-12 }],
  ["bit error rate 1e-10", { ber: 1e-10 }],
  ["bit error rate 1e-8", { ber: 1e-8 }],
  ["errors in one direction", { ber: 1e-10, one_way: true }],
  ["flaps, 60 per hour", { flaps: 60 }],
];

export function linkPanel(store: Store, link: number, element: HTMLElement): () => void {
  const model = store.model!;
  const ports = model.ports(link);
  const state = h("div");
  const modules = modulesOf(store, ports[0]);
  const trouble = h("p", { class: "problem", role: "alert" });
  const fault = h("select", { "aria-label": "Fault" }, FAULTS.map(([name], i) => h("option", { value: String(i) }, name)));
  fill(
    element,
    h("h2", { class: "big" }, h("span", null, ports[0]), h("span", { class: "faint" }, "–"), h("span", null, ports[1])),
    state,
    h(
      "p",
      { class: "buttons" },
      [model.fabric.links.a[link], model.fabric.links.b[link]].map((node) => h("button", { type: "button", onclick: () => store.select({ kind: "node", node }) }, model.name(node))),
    ),
    removeButton(store, `cut:${ports[0]}`),
    h(
      "section",
      { class: "acts" },
      h("h3", null, "Lab"),
      h("p", { class: "buttons" }, act(store, "Break", ports[0], { do: "break" }, trouble, "danger"), repairButton(store, ports[0], trouble)),
      h("p", { class: "buttons" }, act(store, "Degrade", ports[0], () => ({ do: "degrade", ...FAULTS[Number(fault.value)][1] }), trouble), fault),
      h("p", { class: "buttons" }, captureButton(store, ports[0], trouble), h("span", { class: "faint" }, "MADs and packets of programs, for Wireshark")),
      trouble,
    ),
    portActions(store, link),
    modules.element,
    changesOf(store, ports),
  );
  return () => (fill(state, stateOf(store, link)), modules.refresh());
}

function stateOf(store: Store, link: number): HTMLElement {
  const model = store.model!;
  const rate: [string, string] = ["rate", `${model.fabric.links.gbit_s[link]} Gbit/s`];
  const live = store.isFresh && store.live && fits(model, store.live) ? store.live.links : null;
  if (!live) return facts([["state", "unknown: no data"], rate]);
  return facts([
    ["state", h("span", { class: `state ${live.state[link]}` }, { up: "up", down: "down", bad: "up, suspected" }[live.state[link]])],
    rate,
    ["load", percent(live.load[link])],
    ["waits", percent(live.wait[link])],
    ["errors", live.errors[link] === null ? "unknown" : `${live.errors[link]!.toLocaleString("en")} since the last reading`],
  ]);
}

export function repairButton(store: Store, port: string, trouble?: HTMLElement): HTMLButtonElement {
  return act(store, "Repair", port, { do: "fix" }, trouble);
}

/** Switch the port at the switch's end off and on, and clear the counters of both ends: by MADs, on any fabric. */
function portActions(store: Store, link: number): HTMLElement {
  const model = store.model!;
  const { a, b } = model.fabric.links;
  const ports = model.ports(link);
  const end = model.isSwitch(a[link]) ? 0 : model.isSwitch(b[link]) ? 1 : null;
  const trouble = h("p", { class: "problem", role: "alert" });
  const one = (text: string, orders: [string, unknown][], look = "") => {
    const button = h("button", { type: "button", class: look }, text);
    button.addEventListener("click", async () => {
      button.disabled = true;
      trouble.replaceChildren();
      try {
        for (const [path, body] of orders) await store.api.send("POST", path, body);
      } catch (error) {
        trouble.textContent = messageOf(error);
      }
      button.disabled = false;
    });
    return button;
  };
  const state = (text: string, order: string, look = "") => (end === null ? null : one(text, [["/portstate", { port: ports[end], do: order }]], look));
  return h(
    "section",
    { class: "acts" },
    h("h3", null, end === null ? "Ports" : `Port ${ports[end]}`),
    h("p", { class: "buttons" }, state("Switch off", "disable", "danger"), state("Switch on", "enable"), one("Clear counters", ports.map((port): [string, unknown] => ["/counters/clear", { name: port }]))),
    trouble,
  );
}

/** Captures for some seconds, then saves the file. */
function captureButton(store: Store, port: string, trouble: HTMLElement): HTMLButtonElement {
  const button = h("button", { type: "button" }, `Capture ${CAPTURE_S} s`);
  button.addEventListener("click", async () => {
    button.disabled = true;
    trouble.replaceChildren();
    try {
      save(await store.api.download("POST", "/captures", { port, seconds: CAPTURE_S }), `${port.replaceAll("/", "-")}.pcapng`);
    } catch (error) {
      trouble.textContent = messageOf(error);
    }
    button.disabled = false;
  });
  return button;
}

type Body = Record<string, unknown>;

function act(store: Store, text: string, port: string, body: Body | (() => Body), trouble?: HTMLElement, look = ""): HTMLButtonElement {
  const button = h("button", { type: "button", class: look }, text);
  button.addEventListener("click", async () => {
    button.disabled = true;
    trouble?.replaceChildren();
    try {
      await store.api.send("POST", "/cables", { name: port, ...(typeof body === "function" ? body() : body) });
    } catch (error) {
      if (trouble) trouble.textContent = messageOf(error);
      else store.note({ t: Date.now() / 1000, kind: "refused", text: messageOf(error) });
    }
    button.disabled = false;
  });
  return button;
}
