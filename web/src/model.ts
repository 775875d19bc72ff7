// The fabric: the service's columns, and adjacency arrays.

import { count } from "./format";
import type { Fabric, Live } from "./shapes";

/** A switch or host, or a server with several adapters, which is one item of the drawing and of the search. */
export type Item = { kind: "node"; node: number } | { kind: "server"; server: string };

export class Model {
  readonly nodes: number;
  readonly links: number;
  readonly index = new Map<string, number>(); // name of a node -> its number
  readonly #linkOfPort = new Map<string, number>(); // "leaf1/5" -> link
  readonly #first: Int32Array; // [node] -> where its links begin in #near
  readonly #near: Int32Array; // links, by node

  constructor(readonly fabric: Fabric) {
    const { nodes, links } = fabric;
    this.nodes = nodes.name.length;
    this.links = links.a.length;
    nodes.name.forEach((name, i) => this.index.set(name, i));
    const first = new Int32Array(this.nodes + 1);
    for (const end of [links.a, links.b]) for (const node of end) first[node + 1]++;
    for (let i = 0; i < this.nodes; i++) first[i + 1] += first[i];
    const next = first.slice();
    const near = new Int32Array(2 * this.links);
    for (let link = 0; link < this.links; link++) {
      near[next[links.a[link]]++] = link;
      near[next[links.b[link]]++] = link;
      for (const port of this.ports(link)) this.#linkOfPort.set(port, link);
    }
    this.#first = first;
    this.#near = near;
    this.#findServers();
  }

  /** The adapters of each server with several, by the server's name. */
  readonly servers = new Map<string, number[]>();

  #findServers(): void {
    const { server } = this.fabric.nodes;
    for (let node = 0; node < this.nodes; node++) {
      if (!server[node] || this.isSwitch(node) || !this.linksOf(node).length) continue;
      const adapters = this.servers.get(server[node]);
      if (adapters) adapters.push(node);
      else this.servers.set(server[node], [node]);
    }
    for (const [name, adapters] of this.servers) if (adapters.length < 2) this.servers.delete(name);
  }

  name(node: number): string {
    return this.fabric.nodes.name[node];
  }

  /** The server of an adapter if it has several, else the node itself. */
  itemOf(node: number): Item {
    const server = this.fabric.nodes.server[node];
    return this.servers.has(server) ? { kind: "server", server } : { kind: "node", node };
  }

  nodesOf(item: Item): number[] {
    return item.kind === "node" ? [item.node] : this.servers.get(item.server)!;
  }

  nameOf(item: Item): string {
    return item.kind === "node" ? this.name(item.node) : item.server;
  }

  /** Whether a node is drawn; nodes inside a server are not. */
  isShown(node: number): boolean {
    return this.isSwitch(node) || this.linksOf(node).length > 0 || this.fabric.nodes.kind[node] === "hca";
  }

  shown(): number[] {
    return Array.from({ length: this.nodes }, (_, node) => node).filter((node) => this.isShown(node));
  }

  isSwitch(node: number): boolean {
    return this.fabric.nodes.kind[node] === "switch";
  }

  /** A description on one line. */
  describe(item: Item): string {
    if (item.kind === "server") return `server, ${count(this.nodesOf(item).length, "adapter")}`;
    const { kind, model } = this.fabric.nodes;
    const isAdapter = this.itemOf(item.node).kind === "server";
    return [kind[item.node] === "hca" ? (isAdapter ? "adapter" : "host") : kind[item.node], model[item.node]].filter(Boolean).join(", ");
  }

  linksOf(node: number): Int32Array {
    return this.#near.subarray(this.#first[node], this.#first[node + 1]);
  }

  /** The node at the other end. */
  across(link: number, node: number): number {
    const { a, b } = this.fabric.links;
    return a[link] === node ? b[link] : a[link];
  }

  /** Names of the ports at its ends. */
  ports(link: number): [string, string] {
    const { a, b, a_port, b_port } = this.fabric.links;
    return [`${this.name(a[link])}/${a_port[link]}`, `${this.name(b[link])}/${b_port[link]}`];
  }

  linkAt(port: string): number | undefined {
    return this.#linkOfPort.get(port);
  }

  /** The link of the first of these ports that has one. */
  linkOf(ports: string[]): number | undefined {
    for (const port of ports) {
      const found = this.#linkOfPort.get(port);
      if (found !== undefined) return found;
    }
    return undefined;
  }
}

/** Whether a state belongs to this revision of the fabric. */
export function fits(model: Model, live: Live): boolean {
  return live.links.load.length === model.links;
}
