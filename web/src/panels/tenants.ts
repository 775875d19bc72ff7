// The intent as text: edit, plan, apply.

import { messageOf } from "../api";
import { fill, h } from "../dom";
import { announce } from "../accessibility";
import type { Plan } from "../shapes";
import type { Store } from "../store";
import { toToml } from "../toml";
import { notes, planOf } from "./plan";

export function tenants(store: Store, element: HTMLElement): { load(): void } {
  const text = h("textarea", { id: "intent", rows: 14, spellcheck: "false", autocapitalize: "off", "aria-label": "Tenants, in TOML", placeholder: "No tenants yet." });
  const result = h("div", { "aria-live": "polite" });
  let tag: string | null = null;
  let isLoaded = false;
  let applied = ""; // the intent of the service as text
  const allow = () => (applyButton.disabled = text.value.trim() === applied.trim()); // nothing to apply

  const load = async () => {
    try {
      const intent = await store.api.getTagged<Record<string, unknown>>("/intent");
      tag = intent.tag;
      applied = toToml(intent.body);
      if (!isLoaded || text.value === "") text.value = applied;
      isLoaded = true;
      allow();
    } catch (error) {
      fill(result, h("p", { class: "problem" }, messageOf(error)));
    }
    await members(store);
  };
  const doing = (work: () => Promise<void>) => async () => {
    fill(result, h("p", { class: "faint" }, "planning …"));
    try {
      await work();
    } catch (error) {
      fill(result, h("p", { class: "problem" }, messageOf(error)));
    }
  };
  const plan = doing(async () => fill(result, planOf((await store.api.send<Plan>("POST", "/intent/plan", text.value))!)));
  const apply = doing(async () => {
    const found = await store.api.send<{ notes: string[] }>("PUT", "/intent", text.value, tag ? { "If-Match": tag } : {});
    fill(result, h("p", { class: "done" }, "Applied."), notes(found?.notes ?? []));
    announce("Tenants applied");
    await load();
  });
  const applyButton = h("button", { type: "button", class: "primary", disabled: true, onclick: apply }, "Apply");
  text.addEventListener("input", allow);
  const again = () => ((isLoaded = false), fill(result), void load());
  fill(
    element,
    h("label", { for: "intent", class: "faint" }, "Tenants, services and classes in TOML, as for weft tenants: [tenant.NAME] with hosts = [HOSTS]"),
    text,
    h(
      "p",
      { class: "buttons" },
      h("button", { type: "button", onclick: plan }, "Plan"),
      applyButton,
      h("button", { type: "button", onclick: again }, "Reload"),
    ),
    result,
  );
  return { load: () => void load() };
}

interface FabricPort {
  host: string;
  partitions: string[];
}

interface Partition {
  p_key: string;
  name: string;
}

/** The tenant of each host, for the drawing. */
async function members(store: Store): Promise<void> {
  try {
    const [ports, partitions, named] = await Promise.all([
      store.api.get<FabricPort[]>("/ports"),
      store.api.get<Partition[]>("/partitions"),
      store.api.get<Record<string, unknown>>("/tenants"),
    ]);
    const nameOf = new Map(partitions.map((one) => [one.p_key, one.name]));
    store.tenantNames = Object.keys(named).sort();
    store.tenantOf = new Map();
    for (const port of ports) {
      const owner = port.partitions.map((key) => nameOf.get(key) ?? "").find((name) => name in named);
      if (owner) store.tenantOf.set(port.host, owner);
    }
    store.tell("tenants");
  } catch {
    // errors are shown above; a role without access is no error
  }
}
