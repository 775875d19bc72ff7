// Convert an intent from JSON to TOML for editing.

type Table = Record<string, unknown>;

const BARE = /^[A-Za-z0-9_-]+$/;

/** Tables of depth two, such as [tenant.acme]; deeper values are inline. */
export function toToml(intent: Table): string {
  const parts: string[] = [];
  const top = Object.entries(intent).filter(([, value]) => !isTable(value));
  if (top.length) parts.push(top.map(([key, value]) => line(key, value)).join("\n"));
  for (const [kind, tables] of Object.entries(intent)) {
    if (!isTable(tables)) continue;
    for (const [name, table] of Object.entries(tables)) {
      const lines = Object.entries(table as Table).map(([key, value]) => line(key, value));
      parts.push([`[${kind}.${keyOf(name)}]`, ...lines].join("\n"));
    }
  }
  return parts.join("\n\n") + (parts.length ? "\n" : "");
}

function line(key: string, value: unknown): string {
  return `${keyOf(key)} = ${valueOf(value)}`;
}

function keyOf(key: string): string {
  return BARE.test(key) ? key : JSON.stringify(key);
}

function valueOf(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(valueOf).join(", ")}]`;
  if (isTable(value)) return `{ ${Object.entries(value).map(([key, inner]) => line(key, inner)).join(", ")} }`;
  return JSON.stringify(value); // the same in TOML for strings, numbers and booleans
}

function isTable(value: unknown): value is Table {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
