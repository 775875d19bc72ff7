// The timeline below the drawing: a range slider over the recorded states. In the past nothing can be changed.

import { Problem, messageOf } from "./api";
import { announce } from "./accessibility";
import { byId, fill, h, say } from "./dom";
import { ago, moment } from "./format";
import { Model } from "./model";
import type { Fabric, Live, Past, PastEvent } from "./shapes";
import type { Store } from "./store";

const EVERY_MS = 5000;
const RANGES: [string, number][] = [["all", Infinity], ["last hour", 3600], ["last day", 86_400], ["last week", 604_800]];
const STEPS = 2000; // of the slider
const MOST_MARKS = 300;
const ONLY_NOW = ["path", "tenants", "runs", "whatif"]; // pages without a past

/** A recorded range that is not empty. */
type Range = Past & { first: number; last: number };

export interface Timeline {
  go(t: number): void;
  back(): void;
}

export function timeline(store: Store, present: () => Promise<void>): Timeline {
  const slider = h("input", { type: "range", id: "when", min: "0", max: String(STEPS), value: String(STEPS), "aria-label": "Time" });
  const shown = h("output", { for: "when" }, "now");
  const marks = h("div", { class: "marks", "aria-hidden": "true" });
  const range = h("select", { "aria-label": "Range of the slider" }, RANGES.map(([text], i) => h("option", { value: String(i) }, text)));
  const drawings = new Map<string, Fabric>();
  let past: Range | null = null;
  let asked: AbortController | null = null;

  const first = () => Math.max(past!.first, past!.last - RANGES[Number(range.value)][1]);
  const timeOf = (step: number) => first() + (step / STEPS) * (past!.last - first());
  const stepOf = (t: number) => Math.round((STEPS * (t - first())) / Math.max(past!.last - first(), 1e-3));

  const go = async (t: number): Promise<void> => {
    asked?.abort();
    const mine = (asked = new AbortController());
    try {
      const live = await store.api.get<Live>(`/past/state?at=${t}`, mine.signal);
      const fabric = drawings.get(live.revision) ?? (await store.api.get<Fabric>(`/past/fabrics/${live.revision}`, mine.signal));
      if (mine.signal.aborted) return;
      drawings.set(live.revision, fabric);
      const isSame = store.model?.fabric.revision === live.revision;
      store.showPast(live, t, isSame ? null : new Model(fabric));
      announce(`the past: ${moment(live.t)}`);
    } catch (error) {
      if (!mine.signal.aborted) store.note({ t: Date.now() / 1000, kind: "trouble", text: messageOf(error) });
    }
  };
  const back = () => {
    asked?.abort();
    if (store.mode !== "past") return;
    store.leavePast();
    void present();
  };
  const jump = (direction: 1 | -1) => {
    const at = store.at ?? past!.last;
    const times = past!.events.map((event) => event.t);
    const next = direction > 0 ? times.find((t) => t > at) : times.filter((t) => t < at).pop();
    if (next !== undefined) void go(next);
    else if (direction > 0) back();
  };
  slider.addEventListener("input", () => {
    const step = Number(slider.value);
    if (step >= STEPS) back();
    else void go(timeOf(step));
  });
  const step = (text: string, label: string, direction: 1 | -1) => h("button", { type: "button", "aria-label": label, title: label, onclick: () => jump(direction) }, text);
  const draw = () => {
    byId("timeline").hidden = past === null || store.mode === "model";
    if (!past) return;
    const isPast = store.mode === "past";
    slider.value = String(isPast ? Math.min(Math.max(stepOf(store.at!), 0), STEPS - 1) : STEPS);
    const text = isPast ? moment(store.at!) : "now";
    say(shown, text);
    slider.setAttribute("aria-valuetext", text);
    fill(marks, past.events.filter((event) => event.t >= first()).slice(-MOST_MARKS).map((event) => mark(event, stepOf(event.t) / STEPS)));
  };
  const read = async () => {
    if (document.hidden || !store.api.hasToken) return;
    try {
      const found = await store.api.get<Past>("/past");
      past = found.first === null ? null : (found as Range);
      store.hasHistory = past !== null;
      store.events = found.events;
      store.tell("past");
    } catch (error) {
      if (!(error instanceof Problem)) throw error; // the connection is reported elsewhere
    }
    draw();
  };
  range.addEventListener("change", draw);
  fill(byId("timeline"), step("‹", "Previous event", -1), h("div", { class: "track" }, marks, slider), step("›", "Next event", 1), shown, range);
  store.on("mode", () => (draw(), showBanner(store, back)));
  store.on("live", () => past && store.mode === "now" && store.live && ((past.last = Math.max(past.last, store.live.t)), draw()));
  setInterval(() => void read(), EVERY_MS);
  store.on("model", () => past === null && void read());
  return { go: (t) => void go(t), back };
}

function mark(event: PastEvent, share: number): HTMLElement {
  const isBad = event.kind === "alert" || / is down$/.test(event.text);
  return h("i", { class: isBad ? "mark bad" : "mark", "--at": `${(100 * share).toFixed(2)}%` });
}

/** The banner over the drawing while it shows the past. */
function showBanner(store: Store, back: () => void): void {
  const banner = byId("banner");
  const isPast = store.mode === "past";
  if (store.mode === "model") return; // its own banner
  banner.hidden = !isPast;
  document.body.classList.toggle("past", isPast);
  if (!isPast) return;
  if (ONLY_NOW.includes(store.tab)) store.show("overview");
  fill(
    banner,
    h("b", null, `Past: ${moment(store.live!.t)}`),
    h("span", null, ` ${ago(store.present?.t ?? Date.now() / 1000, store.live!.t)}. Nothing can be changed here.`),
    h("button", { type: "button", class: "primary", onclick: back }, "Back to now"),
  );
}
