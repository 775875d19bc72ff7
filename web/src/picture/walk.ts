// Arrow keys: along a row to the left and right; up and down along a cable.

import type { Item, Model } from "../model";

export type Direction = "left" | "right" | "up" | "down";

/** The next item in a direction. From an adapter the keys reach the other adapters of its server. */
export function nextItem(model: Model, from: Item | null, direction: Direction): Item | null {
  if (from === null) return topLeft(model);
  const own = model.nodesOf(from);
  const node = direction === "left" || direction === "right" ? inRow(model, own, direction) : alongCable(model, own, direction);
  if (node === null) return null;
  const item = model.itemOf(node);
  const isSibling = from.kind === "node" && item.kind === "server" && model.nodesOf(item).includes(from.node);
  return isSibling ? { kind: "node", node } : item;
}

function inRow(model: Model, own: number[], direction: Direction): number | null {
  const { x, y } = model.fabric.nodes;
  const sign = direction === "right" ? 1 : -1;
  const from = Math.max(...own.map((node) => sign * x[node]));
  const row = model.shown().filter((node) => y[node] === y[own[0]] && sign * x[node] > from);
  return least(row, (node) => sign * x[node]);
}

function alongCable(model: Model, own: number[], direction: Direction): number | null {
  const { x, y } = model.fabric.nodes;
  const sign = direction === "up" ? 1 : -1;
  const middle = (x[own[0]] + x[own[own.length - 1]]) / 2;
  const ends = own.flatMap((node) => [...model.linksOf(node)].map((link) => model.across(link, node)));
  return least(ends.filter((node) => (y[node] - y[own[0]]) * sign > 0), (node) => Math.abs(x[node] - middle));
}

function topLeft(model: Model): Item | null {
  const { x, y } = model.fabric.nodes;
  const shown = model.shown();
  const highest = least(shown, (node) => -y[node]);
  const node = least(shown.filter((node) => y[node] === y[highest!]), (node) => x[node]);
  return node === null ? null : model.itemOf(node);
}

/** The first node with the least value; null: there is no node. */
function least(nodes: number[], value: (node: number) => number): number | null {
  return nodes.reduce<number | null>((best, node) => (best === null || value(node) < value(best) ? node : best), null);
}
