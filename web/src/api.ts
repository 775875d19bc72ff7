// The REST client. The token is sent in a header, never in a URL.

export class Problem extends Error {
  constructor(
    readonly status: number,
    detail: string,
  ) {
    super(detail);
  }
}

export interface Answer<T> {
  body: T;
  tag: string | null;
}

const CHANGES_NOTHING = ["/whatif"];
const KEPT = "weft-token";

/** The token from the URL's fragment, which is not sent to servers; else the stored one. */
function findToken(): string {
  const found = new URLSearchParams(location.hash.slice(1)).get("token");
  if (found) {
    keep(found);
    history.replaceState(null, "", location.pathname + location.search);
  }
  return found ?? sessionStorage.getItem(KEPT) ?? "";
}

function keep(token: string): void {
  sessionStorage.setItem(KEPT, token); // for this tab only
}

export class Api {
  refusal = ""; // why nothing may be changed now

  #token = findToken();

  get hasToken(): boolean {
    return this.#token !== "";
  }

  use(token: string): void {
    this.#token = token;
    keep(token);
  }

  async fetch(path: string, options: RequestInit = {}): Promise<Response> {
    const headers = new Headers(options.headers);
    headers.set("Authorization", `Bearer ${this.#token}`);
    let answer: Response;
    try {
      answer = await fetch(`api/v1${path}`, { ...options, headers });
    } catch (error) {
      if (options.signal?.aborted) throw error;
      throw new Problem(0, "the service does not answer");
    }
    if (!answer.ok) throw new Problem(answer.status, await detailOf(answer));
    return answer;
  }

  async get<T>(path: string, signal?: AbortSignal): Promise<T> {
    return (await this.fetch(path, { signal })).json();
  }

  async getTagged<T>(path: string): Promise<Answer<T>> {
    const answer = await this.fetch(path);
    return { body: await answer.json(), tag: answer.headers.get("ETag") };
  }

  async send<T>(method: string, path: string, body?: unknown, headers: Record<string, string> = {}): Promise<T | null> {
    const text = await (await this.#order(method, path, body, headers)).text();
    return text ? JSON.parse(text) : null;
  }

  /** Send a request whose answer is a file. */
  async download(method: string, path: string, body: unknown): Promise<Blob> {
    return (await this.#order(method, path, body, {})).blob();
  }

  async #order(method: string, path: string, body: unknown, headers: Record<string, string>): Promise<Response> {
    if (this.refusal && !CHANGES_NOTHING.includes(path)) throw new Problem(0, this.refusal);
    const isText = typeof body === "string";
    return this.fetch(path, {
      method,
      body: body === undefined ? undefined : isText ? body : JSON.stringify(body),
      headers: { "Content-Type": isText ? "application/toml" : "application/json", ...headers },
    });
  }
}

/** Save a file that the service sends. */
export function save(content: Blob, name: string): void {
  const address = URL.createObjectURL(content);
  const link = document.createElement("a");
  link.href = address;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 60_000);
}

async function detailOf(answer: Response): Promise<string> {
  const text = await answer.text();
  try {
    return JSON.parse(text).detail ?? text;
  } catch {
    return text || `${answer.status} ${answer.statusText}`;
  }
}

export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
