// Marks above the lines: the highlighted path, the selection, cables that are down or suspected.

import type Sigma from "sigma";
import { penOf, theme } from "../colours";
import { fits, type Item, type Model } from "../model";
import type { Store } from "../store";
import { type Frame, frames } from "./frames";
import { drawName } from "./names";

type Point = { x: number; y: number };
const MOST_SELECTED = 200; // highlighted lines of a node or server
const MOST_TROUBLED = 400;

export class Marks {
  hovered: Item | null = null; // under the pointer
  readonly #context: CanvasRenderingContext2D;

  constructor(
    readonly sigma: Sigma,
    readonly store: Store,
    readonly model: Model,
    readonly lanes: Float32Array,
    readonly steps: Uint8Array,
  ) {
    const place = { beforeLayer: "nodes", style: { pointerEvents: "none" as const } };
    sigma.createCanvasContext("marks", place); // below the nodes: sigma passes the position to createLayer
    sigma.resize(true); // sets the size of the layer
    this.#context = sigma.getCanvases().marks.getContext("2d")!;
    sigma.on("afterRender", () => this.draw());
  }

  draw(): void {
    const { width, height } = this.sigma.getDimensions();
    const context = this.#context;
    context.clearRect(0, 0, width, height);
    context.lineCap = "round";
    this.#drawServers();
    const troubled = this.#troubled();
    for (const [link, isDown] of troubled) this.#drawTrouble(link, isDown);
    this.#drawSelected();
    this.#drawPath();
    for (const [link, isDown] of troubled) this.#sign(link, isDown);
    if (this.hovered?.kind === "node") this.#drawHovered(this.hovered.node);
  }

  /** A frame around the adapters of each server, with its name if there is room or if it is selected. */
  #drawServers(): void {
    const context = this.#context;
    const ink = theme();
    for (const frame of frames(this.sigma, this.model)) {
      const isMarked = [this.hovered, this.store.selection].some((item) => item?.kind === "server" && item.server === frame.server);
      context.fillStyle = ink.frame;
      context.strokeStyle = isMarked ? ink.selected : ink.frame;
      context.lineWidth = isMarked ? 2.5 : 1;
      context.beginPath();
      context.roundRect(frame.left, frame.top, frame.width, frame.height, 3);
      context.fill();
      context.stroke();
      this.#drawServerName(frame, isMarked ? Infinity : frame.width + frame.height - 8);
    }
  }

  #drawServerName({ server, left, top, width, height }: Frame, room: number): void {
    const { labelSize, labelFont } = this.sigma.getSettings();
    const context = this.#context;
    const ink = theme();
    context.font = `${labelSize}px ${labelFont}`;
    if (context.measureText(server).width > room) return;
    const [x, y] = [left + width / 2, top + height + 3 + labelSize * 0.8];
    context.textAlign = "center";
    context.lineWidth = 3;
    context.lineJoin = "round";
    context.strokeStyle = ink.halo;
    context.strokeText(server, x, y);
    context.fillStyle = ink.text;
    context.fillText(server, x, y);
  }

  #drawHovered(node: number): void {
    const data = this.sigma.getNodeDisplayData(String(node))!;
    this.#ring(node, 3, 2);
    const at = { ...data, ...this.#place(node), size: this.sigma.scaleSize(data.size), room: undefined };
    drawName(this.#context, at, this.sigma.getSettings());
  }

  #ends(link: number): [Point, Point] {
    const { a, b } = this.model.fabric.links;
    return [this.#place(a[link], link), this.#place(b[link], link)];
  }

  #place(node: number, link?: number): Point {
    const at = this.sigma.getNodeDisplayData(String(node))!;
    const [dx, dy] = link === undefined ? [0, 0] : [this.lanes[2 * link], this.lanes[2 * link + 1]];
    return this.sigma.framedGraphToViewport({ x: at.x + dx, y: at.y + dy });
  }

  #line(link: number, colour: string, width: number, dash: number[] = []): void {
    const [from, to] = this.#ends(link);
    const context = this.#context;
    context.strokeStyle = colour;
    context.lineWidth = width;
    context.setLineDash(dash);
    context.beginPath();
    context.moveTo(from.x, from.y);
    context.lineTo(to.x, to.y);
    context.stroke();
    context.setLineDash([]);
  }

  /** Links that are down or suspected, up to a limit. */
  #troubled(): [number, boolean][] {
    const { live, isFresh } = this.store;
    if (!live || !isFresh || !fits(this.model, live)) return [];
    const found = new Map<number, boolean>();
    for (const suspect of live.suspects) {
      const link = this.model.linkOf(suspect.link);
      if (link !== undefined) found.set(link, false);
    }
    for (let link = 0; link < this.model.links && found.size < MOST_TROUBLED; link++) {
      if (live.links.state[link] !== "up") found.set(link, live.links.state[link] === "down");
    }
    return [...found];
  }

  #drawTrouble(link: number, isDown: boolean): void {
    const ink = theme();
    this.#line(link, ink.paper, 4);
    this.#line(link, ink.alarm, 1.8, isDown ? [2, 6] : []);
  }

  /** A shape in the middle of a line, in addition to its colour. */
  #sign(link: number, isDown: boolean): void {
    const [from, to] = this.#ends(link);
    const [x, y] = [(from.x + to.x) / 2, (from.y + to.y) / 2];
    const ink = theme();
    const context = this.#context;
    context.fillStyle = ink.alarm;
    context.beginPath();
    context.arc(x, y, 7.5, 0, 7);
    context.fill();
    context.strokeStyle = ink.paper;
    context.fillStyle = ink.paper;
    context.lineWidth = 2;
    context.beginPath();
    if (isDown) {
      for (const side of [1, -1]) {
        context.moveTo(x - 3, y - 3 * side);
        context.lineTo(x + 3, y + 3 * side);
      }
    } else {
      context.moveTo(x, y - 4);
      context.lineTo(x, y + 0.5);
      context.moveTo(x, y + 3.9);
      context.lineTo(x, y + 4);
    }
    context.stroke();
  }

  #drawSelected(): void {
    const { selection, measure } = this.store;
    const ink = theme();
    if (selection === null) return;
    if (selection.kind === "link") {
      this.#line(selection.link, ink.selected, 5);
      this.#line(selection.link, penOf(this.steps[selection.link], measure, ink)[0], 2.5);
      return;
    }
    for (const node of this.model.nodesOf(selection)) {
      for (const link of this.model.linksOf(node).subarray(0, MOST_SELECTED)) {
        this.#line(link, ink.selected, 1.4);
        this.#ring(this.model.across(link, node), 1, 1.2);
      }
      if (selection.kind === "node") this.#ring(node, 4, 2.5);
    }
  }

  #ring(node: number, room: number, width: number): void {
    const at = this.#place(node);
    const size = this.sigma.scaleSize(this.sigma.getNodeDisplayData(String(node))!.size);
    const context = this.#context;
    context.strokeStyle = theme().selected;
    context.lineWidth = width;
    context.beginPath();
    context.arc(at.x, at.y, size * (this.model.isSwitch(node) ? 1.3 : 1) + room, 0, 7);
    context.stroke();
  }

  #drawPath(): void {
    const { lit, route } = this.store;
    if (!lit.length) return;
    const ink = theme();
    for (const link of lit) this.#line(link, ink.paper, 7);
    for (const link of lit) this.#line(link, ink.lit, 4);
    for (const hop of route?.hops ?? []) {
      const node = this.model.index.get(hop.node);
      if (node !== undefined) this.#ring(node, 3, 2.5);
    }
  }
}
