// One cable: what it carries, what ails it, and how to break and mend it.

import { wordsOf } from "../api";
import { fill, h } from "../dom";
import { fits } from "../model";
import type { Store } from "../store";
import { percent } from "../words";
import { facts } from "./facts";

const ILLS: [string, Record<string, unknown>][] = [
  ["bit error rate 1e-12", { ber: 1e-12 }],
  ["bit error rate 1e-10", { ber: 1e-10 }],
  ["bit error rate 1e-8", { ber: 1e-8 }],
  ["errors one way", { ber: 1e-10, one_way: true }],
  ["flaps, 60 an hour", { flaps: 60 }],
];

export function linkPanel(store: Store, link: number, element: HTMLElement): () => void {
  const model = store.model!;
  const ports = model.ports(link);
  const state = h("div");
  const trouble = h("p", { class: "problem", role: "alert" });
  const ill = h("select", { "aria-label": "How it is to be ill" }, ILLS.map(([name], i) => h("option", { value: String(i) }, name)));
  fill(
    element,
    h("h2", { class: "big" }, h("span", null, ports[0]), h("span", { class: "faint" }, "–"), h("span", null, ports[1])),
    state,
    h(
      "p",
      { class: "buttons" },
      ports.map((port) => h("button", { type: "button", onclick: () => store.selectNode(port.split("/")[0]) }, port.split("/")[0])),
    ),
    h("h3", null, "Try it"),
    h("p", { class: "buttons" }, act(store, "Break", ports[0], { do: "break" }, trouble, "danger"), mendButton(store, ports[0], trouble)),
    h("p", { class: "buttons" }, act(store, "Degrade", ports[0], () => ({ do: "degrade", ...ILLS[Number(ill.value)][1] }), trouble), ill),
    trouble,
  );
  return () => fill(state, stateOf(store, link));
}

function stateOf(store: Store, link: number): HTMLElement {
  const model = store.model!;
  const rate: [string, string] = ["rate", `${model.fabric.links.gbit_s[link]} Gbit/s`];
  const live = store.isFresh && store.live && fits(model, store.live) ? store.live.links : null;
  if (!live) return facts([["state", "unknown: nothing is heard"], rate]);
  return facts([
    ["state", h("span", { class: `state ${live.state[link]}` }, { up: "up", down: "down", bad: "up, and bad" }[live.state[link]])],
    rate,
    ["load", percent(live.load[link])],
    ["waits", percent(live.wait[link])],
    ["errors", live.errors[link] === null ? "unknown" : `${live.errors[link]!.toLocaleString("en")} since the last reading`],
  ]);
}

export function mendButton(store: Store, port: string, trouble?: HTMLElement): HTMLButtonElement {
  return act(store, "Mend", port, { do: "fix" }, trouble);
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
      if (trouble) trouble.textContent = wordsOf(error);
      else store.note({ t: Date.now() / 1000, kind: "refused", text: wordsOf(error) });
    }
    button.disabled = false;
  });
  return button;
}
