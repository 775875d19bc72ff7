// The colours of links and hosts by the selected measure.

import { BUSIEST, busiestStep, DIM, stepOfErrors, stepOfLoad, theme, UNKNOWN } from "../colours";
import { fits, type Model } from "../model";
import type { Store } from "../store";

const THICK_SHARE = 0.05; // of all links are drawn thick at most
const LEAST_THICK = 8; // in a small fabric

/** Writes the step of each link to `steps`; returns the links whose step changed. */
export function inkLinks(store: Store, model: Model, steps: Uint8Array): number[] {
  const step = chooser(store, model);
  const changed: number[] = [];
  for (let link = 0; link < model.links; link++) {
    const found = step(link);
    if (found !== steps[link]) {
      steps[link] = found;
      changed.push(link);
    }
  }
  return changed;
}

function chooser(store: Store, model: Model): (link: number) => number {
  if (store.lit.length) {
    return () => DIM; // the path itself is drawn on top
  }
  if (store.measure === "tenant") {
    const { a, b } = model.fabric.links;
    return (link) => tenantStep(store, model.isSwitch(a[link]) ? b[link] : a[link]);
  }
  const live = store.isFresh && store.live && fits(model, store.live) ? store.live.links : null;
  if (!live) return () => UNKNOWN;
  if (store.measure === "load") {
    const steps = live.load.map(stepOfLoad);
    const busiest = busiestStep(steps, Math.max(LEAST_THICK, THICK_SHARE * model.links));
    return (link) => steps[link] + (steps[link] !== UNKNOWN && steps[link] >= busiest ? BUSIEST : 0);
  }
  const most = theme().errors.length;
  return (link) => stepOfErrors(live.errors[link], most);
}

/** UNKNOWN for switches, and for hosts of no tenant. */
export function tenantStep(store: Store, node: number): number {
  const name = store.ownerOf(node);
  return name === undefined ? UNKNOWN : store.tenantNames.indexOf(name);
}
