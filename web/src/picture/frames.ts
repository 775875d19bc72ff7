// Frames of servers: the adapters of a server stand side by side in one.

import type Sigma from "sigma";
import type { Model } from "../model";

export interface Frame {
  server: string;
  left: number;
  top: number;
  width: number;
  height: number;
}

const LEAST_WIDTH = 8; // pixels

/** The visible frames, in pixels. */
export function* frames(sigma: Sigma, model: Model): Generator<Frame> {
  const { x, y } = model.fabric.nodes;
  const stage = sigma.getDimensions();
  const place = (node: number) => sigma.framedGraphToViewport(sigma.getNodeDisplayData(String(node))!);
  for (const [server, adapters] of model.servers) {
    const [first, last] = [adapters[0], adapters[adapters.length - 1]];
    if (y[first] !== y[last] || x[last] - x[first] !== adapters.length - 1) continue; // not side by side
    const [from, to] = [place(first), place(last)];
    const beyond = Math.max((to.x - from.x) / (adapters.length - 1) / 2, 2);
    const frame = { server, left: from.x - beyond, top: from.y - beyond - 1, width: to.x - from.x + 2 * beyond, height: 2 * beyond + 2 };
    const isVisible = frame.left < stage.width && frame.left + frame.width > 0 && frame.top < stage.height && frame.top + frame.height > 0;
    if (frame.width >= LEAST_WIDTH && isVisible) yield frame;
  }
}

export function serverAt(sigma: Sigma, model: Model, at: { x: number; y: number }): string | null {
  for (const { server, left, top, width, height } of frames(sigma, model)) {
    if (at.x >= left && at.x <= left + width && at.y >= top && at.y <= top + height) return server;
  }
  return null;
}
