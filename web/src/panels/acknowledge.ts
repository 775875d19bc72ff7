// Acknowledge an alarm with a name and a reason, or withdraw it.

import { messageOf } from "../api";
import { announce } from "../accessibility";
import { fill, h } from "../dom";
import { moment } from "../format";
import type { Acknowledgement } from "../shapes";
import type { Store } from "../store";

const NAME = "weft-name"; // kept for the next alarm of this browser
const DAYS: [string, number][] = [["1 day", 1], ["7 days", 7], ["30 days", 30]];
let made = 0;

export class Acknowledge {
  readonly element = h("div", { class: "acknowledge" });
  #shown = "";

  constructor(
    readonly store: Store,
    readonly alarm: string,
  ) {}

  show(now: Acknowledgement | null): void {
    const state = now ? JSON.stringify(now) : "none";
    if (state === this.#shown) return; // keeps what is typed
    this.#shown = state;
    fill(this.element, now ? this.#stored(now) : this.#form());
  }

  #stored(now: Acknowledgement): HTMLElement[] {
    const trouble = h("p", { class: "problem", role: "alert" });
    return [
      h("p", null, h("b", null, `Acknowledged by ${now.name}`), ` at ${moment(now.at_s)}: ${now.reason}`),
      h("p", { class: "faint" }, `with the token ${now.caller}, until ${moment(now.until_s)}`),
      h("p", { class: "buttons acts" }, h("button", { type: "button", onclick: () => void this.#send("DELETE", undefined, trouble) }, "Withdraw")),
      trouble,
    ];
  }

  #form(): HTMLElement {
    const id = `acknowledge-${++made}`;
    const name = h("input", { id: `${id}-name`, type: "text", required: true, maxlength: "100", autocomplete: "name", value: localStorage.getItem(NAME) ?? "" });
    const reason = h("input", { id: `${id}-reason`, type: "text", required: true, maxlength: "500", placeholder: "for example replaced tonight" });
    const days = h("select", { id: `${id}-days` }, DAYS.map(([text], i) => h("option", { value: String(i), selected: i === 1 }, text)));
    const trouble = h("p", { class: "problem", role: "alert" });
    const send = (event: Event) => {
      event.preventDefault();
      localStorage.setItem(NAME, name.value.trim());
      void this.#send("PUT", { name: name.value, reason: reason.value, days: DAYS[Number(days.value)][1] }, trouble);
    };
    const row = (label: string, field: HTMLElement) => [h("label", { for: field.id }, label), field];
    const submit = h("button", { type: "submit" }, "Acknowledge");
    return h("details", { class: "acts" }, h("summary", null, "acknowledge"), h("form", { onsubmit: send }, row("name", name), row("reason", reason), row("for", days), submit), trouble);
  }

  async #send(method: string, body: unknown, trouble: HTMLElement): Promise<void> {
    trouble.textContent = "";
    try {
      const now = await this.store.api.send<Acknowledgement>(method, `/acknowledgements/${encodeURIComponent(this.alarm)}`, body);
      this.show(now);
      announce(now ? "Acknowledged" : "Acknowledgement withdrawn");
    } catch (error) {
      trouble.textContent = messageOf(error);
    }
  }
}
