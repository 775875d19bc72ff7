// The console: one page, fed by the service.

import "uplot/dist/uPlot.min.css";
import "./style/theme.css";
import "./style/frame.css";
import "./style/pages.css";
import "./style/past.css";
import { Problem, messageOf } from "./api";
import { bar } from "./bar";
import { onTheme } from "./colours";
import { byId } from "./dom";
import { keys } from "./keys";
import { legend } from "./legend";
import { askToken } from "./login";
import { Model } from "./model";
import { historyPage } from "./panels/changes";
import { log } from "./panels/log";
import { overview } from "./panels/overview";
import { path } from "./panels/path";
import { runs } from "./panels/runs";
import { selected } from "./panels/selected";
import { table } from "./panels/table";
import { tenants } from "./panels/tenants";
import { whatIf } from "./panels/whatif";
import { Picture } from "./picture/picture";
import { nodeField } from "./search";
import type { Fabric, Live, LogLine } from "./shapes";
import { sheet } from "./sheet";
import { Store } from "./store";
import { follow } from "./stream";
import { tabs } from "./tabs";
import { timeline } from "./timeline";

const AGAIN_MS = 2000;
let isReading = false;

await painted(); // show the frame of the page before the slow initialisation of WebGL
const store = new Store();
const setMeasure = bar(store);
const pages = tabs(store);
overview(store, pages.overview);
selected(store, pages.selected);
const paths = path(store, pages.path);
const intent = tenants(store, pages.tenants);
runs(store, pages.runs);
table(store, pages.table);
whatIf(store, pages.whatif);
historyPage(store, pages.history);
log(store, pages.log);
legend(store, byId("legend"));
sheet(store);
const times = timeline(store, present);
const picture = hasWebGL() ? new Picture(store, byId("stage")) : null;
keys(store, picture, setMeasure);
wire();
void connect();

/** Resolves after the next paint, or soon in a hidden tab. */
function painted(): Promise<void> {
  return new Promise((done) => {
    requestAnimationFrame(() => setTimeout(done));
    setTimeout(done, 500);
  });
}

function wire(): void {
  const search = nodeField(store, "Find a node", "find a node  /", (item) => {
    store.select(item);
    store.show("selected");
    picture?.goTo(item);
  });
  byId("search").append(search.element);
  byId("nearer").addEventListener("click", () => picture?.zoom(1 / 1.5));
  byId("farther").addEventListener("click", () => picture?.zoom(1.5));
  byId("fit").addEventListener("click", () => picture?.fit());
  byId("help").addEventListener("click", () => byId<HTMLDialogElement>("keys").showModal());
  store.on("select", () => store.selection && store.show("selected"));
  onTheme(() => store.tell("theme"));
  addEventListener("aim", ((event: CustomEvent) => {
    store.show("path");
    paths.aim(event.detail.end, event.detail.node);
  }) as EventListener);
  addEventListener("moment", ((event: CustomEvent<number>) => times.go(event.detail)) as EventListener);
  if (!picture) {
    store.show("table");
    byId("zoom").hidden = byId("legend").hidden = true;
    const said = byId("nothing");
    said.hidden = false;
    said.textContent = "This browser has no WebGL, so nothing is drawn here. Everything else works: cables are under Table.";
  }
}

function hasWebGL(): boolean {
  return document.createElement("canvas").getContext("webgl2") !== null;
}

async function connect(): Promise<void> {
  if (!store.api.hasToken) store.api.use(await askToken(""));
  for (;;) {
    try {
      await readFabric();
      break;
    } catch (error) {
      if (error instanceof Problem && error.status === 401) store.api.use(await askToken(error.message));
      else {
        store.lose(messageOf(error));
        await new Promise((done) => setTimeout(done, AGAIN_MS));
      }
    }
  }
  intent.load();
  void follow(store.api, "/live", { event, up: () => store.regain(), down: (why) => store.lose(why), refused }, new AbortController().signal);
}

async function readFabric(): Promise<void> {
  const fabric = await store.api.get<Fabric>("/fabric");
  store.model = new Model(fabric);
  store.selection = null;
  store.setRoute(null);
  store.tell("model");
}

/** Show the present after the past. */
async function present(): Promise<void> {
  if (store.present && store.model!.fabric.revision !== store.present.revision) await readFabric().catch((error) => store.lose(messageOf(error)));
  store.tell("live");
}

function event(kind: string, data: unknown): void {
  if (kind === "log") {
    store.note(data as LogLine);
    if ((data as LogLine).kind.startsWith("tenant")) intent.load();
  } else if (kind === "state") {
    store.setLive(data as Live);
    if (store.mode === "now" && store.live!.revision !== store.model!.fabric.revision && !isReading) {
      isReading = true; // the cabling has changed
      void readFabric().finally(() => (isReading = false));
    }
  }
}

async function refused(why: string): Promise<void> {
  store.lose(why);
  store.api.use(await askToken(why));
  void connect();
}
