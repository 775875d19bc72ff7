// The changes of an intent, as in `weft tenants plan`.

import { h } from "../dom";
import type { Change, Plan } from "../shapes";
import { plain } from "../format";

const SIGNS: Record<string, string> = { create: "+", change: "~", destroy: "−" };

export function planOf(plan: Plan): HTMLElement {
  const rows = plan.changes.map((change) =>
    h(
      "li",
      { class: change.action },
      h("span", { class: "sign-of" }, SIGNS[change.action]),
      h("div", null, h("b", null, titleOf(change)), linesOf(change).map((line) => h("span", { class: "faint" }, line))),
    ),
  );
  return h("div", null, h("p", { class: "done" }, plan.summary), h("ul", { class: "plan" }, rows), notes(plan.drift), notes(plan.notes));
}

export function notes(lines: string[]): HTMLElement | null {
  return lines.length ? h("ul", { class: "faint" }, lines.map((line) => h("li", null, line))) : null;
}

function titleOf(change: Change): string {
  const name = change.name ?? change.what;
  return [change.p_key ? `${name}=${change.p_key}` : name, change.sl ? `SL ${change.sl}` : "", change.ipoib ? "IPoIB" : ""].filter(Boolean).join(", ");
}

/** One line for members with the same change. */
function linesOf(change: Change): string[] {
  const groups = new Map<string, string[]>();
  for (const member of change.members ?? []) {
    const how = member.before && member.after ? `${member.before} → ${member.after}` : member.after ? `+ ${member.after}` : "− removed";
    groups.set(how, [...(groups.get(how) ?? []), member.port || member.guid]);
  }
  const lines = [...groups].map(([how, ports]) => `${how}: ${ports.join(", ")}`);
  const words = Object.entries(change.changed ?? {}).map(([name, { before, after }]) => `${name}: ${plain(before) || "none"} → ${plain(after) || "none"}`);
  const whole = change.what === "partition" ? [] : [`${plain(change.before) || "none"} → ${plain(change.after) || "none"}`];
  return [...lines, ...words, ...whole];
}
