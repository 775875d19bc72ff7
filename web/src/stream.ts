// Server-sent events over fetch, which can send the token; reconnects until it is stopped.

import { type Api, Problem, messageOf } from "./api";

export interface Listener {
  event(kind: string, data: unknown): void;
  up(): void;
  down(why: string): void;
  refused(why: string): void;
}

const SHORTEST_MS = 500;
const LONGEST_MS = 8000;
const SILENT_MS = 15_000; // a silent stream is closed after this time

export async function follow(api: Api, path: string, listener: Listener, signal: AbortSignal): Promise<void> {
  let wait = SHORTEST_MS;
  while (!signal.aborted) {
    const one = new AbortController();
    const end = () => one.abort();
    signal.addEventListener("abort", end, { once: true });
    try {
      const answer = await api.fetch(path, { signal: one.signal, headers: { Accept: "text/event-stream" } });
      listener.up();
      wait = SHORTEST_MS;
      await read(answer, listener, end);
      listener.down("the service ended the stream");
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof Problem && (error.status === 401 || error.status === 403)) {
        listener.refused(error.message);
        return;
      }
      listener.down(messageOf(error));
    } finally {
      signal.removeEventListener("abort", end);
    }
    await new Promise((done) => setTimeout(done, wait));
    wait = Math.min(wait * 2, LONGEST_MS);
  }
}

async function read(answer: Response, listener: Listener, end: () => void): Promise<void> {
  const reader = answer.body!.pipeThrough(new TextDecoderStream()).getReader();
  const parse = parser(listener);
  for (;;) {
    const silent = setTimeout(end, SILENT_MS);
    const { value, done } = await reader.read().finally(() => clearTimeout(silent));
    if (done) return;
    parse(value);
  }
}

/** A parser of events that accepts text in arbitrary pieces. */
export function parser(listener: Pick<Listener, "event">): (piece: string) => void {
  let rest = "";
  let kind = "message";
  let data: string[] = [];
  return (piece) => {
    const lines = (rest + piece).split(/\r?\n/);
    rest = lines.pop()!;
    for (const line of lines) {
      if (line === "") {
        if (data.length) listener.event(kind, JSON.parse(data.join("\n")));
        kind = "message";
        data = [];
      } else if (line.startsWith("event:")) kind = line.slice(6).trim();
      else if (line.startsWith("data:")) data.push(line.slice(5).replace(/^ /, ""));
    }
  };
}
