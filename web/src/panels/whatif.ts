// What if: clicks change a model, and the service answers what the change would do. The fabric stays as it is.

import { messageOf } from "../api";
import { announce } from "../accessibility";
import { byId, fill, h } from "../dom";
import { count, gbits, percent } from "../format";
import type { WhatIf } from "../shapes";
import type { Store } from "../store";

const ENGINES = ["", "dimension-order", "dragonfly", "fat-tree", "dfsssp", "up-down", "min-hop"];
const ONLY_NOW = ["path", "tenants", "runs", "history"];
const MOST = 8; // names in a list

export function whatIf(store: Store, element: HTMLElement): void {
  const list = h("ul", { class: "faults" });
  const engine = h("select", { id: "whatif-engine" }, ENGINES.map((name) => h("option", { value: name }, name || "the present one")));
  const servers = h("input", { id: "whatif-servers", type: "number", min: "0", value: "0" });
  const result = h("div", { "aria-live": "polite" });
  const ask = async (event: Event) => {
    event.preventDefault();
    fill(result, h("p", { class: "faint" }, "asking the model …"));
    try {
      const order = { faults: store.faults, routing_engine: engine.value, add_servers: Number(servers.value) };
      const answer = (await store.api.send<WhatIf>("POST", "/whatif", order))!;
      fill(result, answerOf(answer));
      announce(answer.safe ? "safe" : "not safe");
    } catch (error) {
      fill(result, h("p", { class: "problem" }, messageOf(error)));
    }
  };
  const form = h(
    "form",
    { class: "whatif", onsubmit: (event: Event) => void ask(event) },
    h("label", { for: "whatif-engine" }, "routing engine"),
    engine,
    h("label", { for: "whatif-servers" }, "more servers"),
    servers,
    h("button", { type: "submit", class: "primary" }, "Ask the model"),
  );
  const start = h("button", { type: "button", class: "primary", onclick: () => store.startModel() }, "Start a model");
  const show = () => {
    const isModel = store.mode === "model";
    document.body.classList.toggle("model", isModel);
    if (isModel) showBanner(store);
    else if (store.mode === "now") byId("banner").hidden = true;
    if (!isModel) {
      fill(result);
      fill(element, h("p", null, "See what a change would do before it is made: routes, hosts that lose their connection, jobs, alarms. In the model, clicks on cables and switches change a copy; the fabric stays as it is."), h("p", { class: "buttons" }, start));
      return;
    }
    if (ONLY_NOW.includes(store.tab)) store.show("whatif");
    const rows = store.faults.map((fault) => h("li", null, h("span", null, wordsOf(fault)), h("button", { type: "button", "aria-label": `take back: ${wordsOf(fault)}`, onclick: () => store.setFaults(store.faults.filter((one) => one !== fault)) }, "Take back")));
    fill(list, rows.length ? rows : h("li", { class: "faint" }, "No cable or switch is removed yet: click one, then the button in its panel."));
    if (!form.isConnected) fill(element, h("h2", null, "Change"), list, form, result);
  };
  store.on("mode", show);
  store.on("faults", () => {
    if (store.mode !== "model") return;
    fill(result);
    show();
  });
  show();
}

function wordsOf(fault: string): string {
  const [kind, where] = [fault.slice(0, fault.indexOf(":")), fault.slice(fault.indexOf(":") + 1)];
  return kind === "cut" ? `without the cable of ${where}` : `without ${where}`;
}

function showBanner(store: Store): void {
  const banner = byId("banner");
  banner.hidden = false;
  const changes = store.faults.length ? `${count(store.faults.length, "change")}. ` : "";
  fill(
    banner,
    h("b", null, "Model"),
    h("span", null, `${changes}Clicks change this model, not the fabric.`),
    h("button", { type: "button", class: "primary", onclick: () => store.leaveModel() }, "Leave the model"),
  );
}

/** A button that removes a cable or a node from the model; shown only in the model. */
export function removeButton(store: Store, fault: string): HTMLElement {
  const button = h("button", { type: "button" });
  const show = () => (button.textContent = store.faults.includes(fault) ? "Take back in the model" : "Remove in the model");
  button.addEventListener("click", () => {
    store.setFaults(store.faults.includes(fault) ? store.faults.filter((one) => one !== fault) : [...store.faults, fault]);
    show();
  });
  show();
  return h("p", { class: "buttons model-acts" }, button);
}

function answerOf(answer: WhatIf): HTMLElement {
  const connected = answer.cut_off_hosts
    ? `${answer.cut_off_hosts.toLocaleString("en")} of ${answer.hosts.toLocaleString("en")} host ports lose their connection: ${some(answer.cut_off, answer.cut_off_hosts)}.`
    : `All ${answer.hosts.toLocaleString("en")} host ports stay connected.`;
  const routes = `Routing by ${answer.engine} changes ${answer.changed_entries.toLocaleString("en")} of ${answer.entries.toLocaleString("en")} entries on ${count(answer.changed_switches, "switch")}, and ${answer.can_deadlock ? "can deadlock" : "cannot deadlock"}.`;
  return h(
    "div",
    { class: "answer" },
    h("p", { class: answer.safe ? "calm" : "problem" }, h("b", null, answer.safe ? "Safe" : "Not safe")),
    h("p", null, connected),
    h("p", null, answer.refusal ? `It cannot be routed afterwards: ${answer.refusal}` : routes),
    answer.new_hosts ? h("p", null, `${count(answer.new_hosts, "new host port")}.`) : null,
    answer.alarms.length ? h("div", null, h("h3", null, "Alarms of the monitor"), h("ul", null, answer.alarms.slice(0, MOST).map((text) => h("li", null, text))), answer.alarms.length > MOST ? h("p", { class: "faint" }, `and ${answer.alarms.length - MOST} more`) : null) : null,
    answer.jobs.length ? table("Jobs", ["job", "before", "until rerouted", "after", "loses"], answer.jobs.map((job) => [job.name, gbits(job.before_gbit_s), gbits(job.meanwhile_gbit_s), gbits(job.after_gbit_s), percent(job.loss)])) : null,
    answer.busiest.length ? table("Busiest ports afterwards", ["port", "before", "after"], answer.busiest.map((port) => [port.port, percent(port.before), percent(port.after)])) : null,
    h("p", { class: "faint" }, "Rates are fair shares on the forwarding tables, without bursts."),
  );
}

function some(names: string[], number: number): string {
  return `${names.slice(0, MOST).join(", ")}${number > MOST ? " and more" : ""}`;
}

function table(title: string, heads: string[], rows: string[][]): HTMLElement {
  const head = h("thead", null, h("tr", null, heads.map((text) => h("th", { scope: "col" }, text))));
  const body = h("tbody", null, rows.map((row) => h("tr", null, row.map((text, i) => h("td", { class: i ? "number" : "" }, text)))));
  return h("div", null, h("h3", null, title), h("table", null, head, body));
}
