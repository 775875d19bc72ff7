// Runs of `weft compare` and `weft train` on the service: start, progress, report.

import { messageOf } from "../api";
import { fill, h } from "../dom";
import type { Run } from "../shapes";
import type { Store } from "../store";

export function runs(store: Store, element: HTMLElement): void {
  const command = h("select", { id: "command" }, h("option", null, "compare"), h("option", null, "train"));
  const spec = field("run-spec", "for example superpod:su=1");
  const what = field("run-what", "for example all_reduce:1G");
  const ofWhat = h("label", { for: "run-what" }, "job");
  command.addEventListener("change", () => {
    const isTraining = command.value === "train";
    ofWhat.textContent = isTraining ? "model" : "job";
    what.value = "";
    what.placeholder = `for example ${isTraining ? "llama3-70b" : "all_reduce:1G"}`;
  });
  const trouble = h("p", { class: "problem", role: "alert" });
  const start = async (event: Event) => {
    event.preventDefault();
    trouble.textContent = "";
    const key = command.value === "train" ? "model" : "job";
    try {
      await store.api.send("POST", "/runs", { command: command.value, spec: spec.value.trim(), [key]: what.value.trim() });
    } catch (error) {
      trouble.textContent = messageOf(error);
    }
  };
  const list = h("div");
  const labels = [h("label", { for: "command" }, "run"), h("label", { for: "run-spec" }, "fabric"), ofWhat];
  const rows = [command, spec, what].flatMap((one, i) => [labels[i], one]);
  fill(element, h("form", { class: "run", onsubmit: start }, rows, h("button", { type: "submit", class: "primary" }, "Run")), trouble, list);
  const shown = new Map<number, Row>();
  store.on("live", () => keep(store, shown, list));
}

function field(id: string, placeholder: string): HTMLInputElement {
  return h("input", { id, type: "text", spellcheck: "false", autocapitalize: "off", required: true, placeholder });
}

function keep(store: Store, shown: Map<number, Row>, list: HTMLElement): void {
  for (const run of store.live!.runs) {
    const row = shown.get(run.id) ?? new Row(store, run);
    shown.set(run.id, row);
    row.show(run);
    if (!row.element.isConnected) list.prepend(row.element);
  }
  for (const [id, row] of shown) {
    if (store.live!.runs.some((run) => run.id === id)) continue;
    row.element.remove();
    shown.delete(id);
  }
}

class Row {
  readonly element = h("article", { class: "run-row" });
  readonly #state = h("p", { class: "faint" });
  readonly #bar = h("progress", { "aria-label": "running" });
  readonly #lines = h("pre", { hidden: true, tabindex: "0" });
  readonly #buttons = h("p", { class: "buttons" });
  readonly #trouble = h("p", { class: "problem", role: "alert" });
  #last = "";

  constructor(
    readonly store: Store,
    readonly run: Run,
  ) {
    fill(this.element, h("h3", null, run.command), this.#state, this.#bar, this.#buttons, this.#trouble, this.#lines);
  }

  show(run: Run): void {
    const isOver = !["waiting", "running"].includes(run.state);
    this.#bar.hidden = isOver;
    this.#state.textContent = `${run.state}, ${Math.round(run.seconds)} s${run.state === "done" || !run.progress ? "" : `: ${run.progress}`}`;
    if (!this.#lines.hidden && !isOver) void this.#try(() => this.#read());
    if (run.state === this.#last) return;
    this.#last = run.state;
    const one = (text: string, work: () => Promise<void>) => h("button", { type: "button", onclick: () => void this.#try(work) }, text);
    fill(
      this.#buttons,
      run.state === "done" ? one("Report", () => this.#report()) : null,
      one("Lines", () => this.#read()),
      isOver ? null : one("End", async () => void (await this.store.api.send("DELETE", `/runs/${run.id}`))),
    );
  }

  async #try(work: () => Promise<void>): Promise<void> {
    this.#trouble.textContent = "";
    try {
      await work();
    } catch (error) {
      this.#trouble.textContent = messageOf(error);
    }
  }

  async #read(): Promise<void> {
    const run = await this.store.api.get<Run>(`/runs/${this.run.id}`);
    this.#lines.hidden = false;
    this.#lines.textContent = run.lines.join("\n") || "no output yet";
  }

  /** A link cannot send the token: fetch the page and open it as a blob. */
  async #report(): Promise<void> {
    const answer = await this.store.api.fetch(`/runs/${this.run.id}/report`);
    const address = URL.createObjectURL(new Blob([await answer.text()], { type: "text/html" }));
    h("a", { href: address, target: "_blank", rel: "noopener" }).click();
    setTimeout(() => URL.revokeObjectURL(address), 60_000);
  }
}
