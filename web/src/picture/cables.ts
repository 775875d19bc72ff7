// Draw parallel cables between two switches side by side; sigma would draw them as one line.

import { EdgeLineProgram, EdgeRectangleProgram } from "sigma/rendering";
import type { EdgeDisplayData, NodeDisplayData } from "sigma/types";
import type { Model } from "../model";

export type Cable = EdgeDisplayData & { dx?: number; dy?: number };

const APART = 0.0035; // relative to the width of the drawing

/** [link] -> distance to the next parallel cable, relative to the width of the drawing; Infinity: none. */
export function gaps(model: Model): Float32Array {
  const { a, b } = model.fabric.links;
  const key = (link: number) => Math.min(a[link], b[link]) * model.nodes + Math.max(a[link], b[link]);
  const together = new Map<number, number>();
  for (let link = 0; link < model.links; link++) together.set(key(link), (together.get(key(link)) ?? 0) + 1);
  return Float32Array.from({ length: model.links }, (_, link) => gap(together.get(key(link))!));
}

function gap(cables: number): number {
  return cables > 1 ? Math.min(APART, 0.02 / cables) : Infinity;
}

/** [link] -> offset from the straight line between its nodes: dx and dy alternate. */
export function lanes(model: Model, x: ArrayLike<number>, y: ArrayLike<number>): Float32Array {
  const { a, b } = model.fabric.links;
  const found = new Float32Array(2 * model.links);
  const together = new Map<number, number[]>();
  for (let link = 0; link < model.links; link++) {
    const key = Math.min(a[link], b[link]) * model.nodes + Math.max(a[link], b[link]);
    const others = together.get(key);
    if (others) others.push(link);
    else together.set(key, [link]);
  }
  for (const links of together.values()) {
    const [from, to] = [a[links[0]], b[links[0]]];
    const isFlat = Math.abs(x[from] - x[to]) > Math.abs(y[from] - y[to]);
    links.forEach((link, i) => {
      found[2 * link + (isFlat ? 1 : 0)] = (i - (links.length - 1) / 2) * Math.min(gap(links.length), APART);
    });
  }
  return found;
}

function beside(end: NodeDisplayData, cable: Cable): NodeDisplayData {
  return cable.dx || cable.dy ? { ...end, x: end.x + (cable.dx ?? 0), y: end.y + (cable.dy ?? 0) } : end;
}

/** Lines with a width, for thousands of links. */
export class Bands extends EdgeRectangleProgram {
  override processVisibleItem(edge: number, start: number, a: NodeDisplayData, b: NodeDisplayData, data: Cable): void {
    super.processVisibleItem(edge, start, beside(a, data), beside(b, data), data);
  }
}

/** Lines of one pixel, for tens of thousands of links, where wider lines would smear and cost four times as much. */
export class Hairs extends EdgeLineProgram {
  override processVisibleItem(edge: number, start: number, a: NodeDisplayData, b: NodeDisplayData, data: Cable): void {
    super.processVisibleItem(edge, start, beside(a, data), beside(b, data), data);
  }
}
