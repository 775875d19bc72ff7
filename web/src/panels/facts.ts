// A list of names and values in two columns.

import { h } from "../dom";

export function facts(rows: [string, string | Node][]): HTMLElement {
  return h("dl", { class: "facts" }, rows.flatMap(([name, value]) => [h("dt", null, name), h("dd", null, value)]));
}
