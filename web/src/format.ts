// Formatting of numbers and times.

const PREFIXES = ["", "k", "M", "G", "T", "P"];

/** 12,500,000,000 -> "12.5 G" */
export function short(value: number): string {
  const size = Math.abs(value);
  if (size < 1) return size === 0 ? "0 " : `${value.toPrecision(2)} `;
  const step = Math.min(Math.floor(Math.log10(size) / 3), PREFIXES.length - 1);
  const scaled = value / 1000 ** step;
  return `${Math.abs(scaled) >= 100 ? Math.round(scaled) : Number(scaled.toPrecision(3))} ${PREFIXES[step]}`;
}

export function percent(share: number | null | undefined): string {
  return share === null || share === undefined ? "unknown" : `${Math.round(100 * share)} %`;
}

/** A confidence below 100 % is not rounded up to it. */
export function sure(confidence: number): string {
  return confidence >= 0.995 ? "over 99 % sure" : `${Math.round(100 * confidence)} % sure`;
}

export function gbits(value: number | null): string {
  return value === null ? "unknown" : `${short(value * 1e9)}bit/s`;
}

export function clock(seconds: number): string {
  return new Date(seconds * 1000).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });
}

/** A time of day, with its date unless that is today. */
export function moment(seconds: number): string {
  const at = new Date(seconds * 1000);
  const isToday = at.toDateString() === new Date().toDateString();
  const pad = (value: number) => String(value).padStart(2, "0");
  return isToday ? clock(seconds) : `${at.getFullYear()}-${pad(at.getMonth() + 1)}-${pad(at.getDate())} ${clock(seconds)}`;
}

/** "3 minutes ago" */
export function ago(now: number, then: number): string {
  const seconds = Math.max(Math.round(now - then), 0);
  for (const [name, size] of [["day", 86_400], ["hour", 3600], ["minute", 60]] as const) {
    if (seconds >= size) return `${count(Math.floor(seconds / size), name)} ago`;
  }
  return `${count(seconds, "second")} ago`;
}

export function count(number: number, noun: string): string {
  const plural = number === 1 ? "" : /(ch|x)$/.test(noun) ? "es" : "s";
  return `${number.toLocaleString("en")} ${noun}${plural}`;
}

/** Hosts of standby subnet managers; null: unknown. */
export function standbys(hosts: string[] | null): string {
  return hosts === null ? "unknown" : hosts.join(", ") || "none";
}

/** leaf2 before leaf10. */
export const natural = new Intl.Collator("en", { numeric: true }).compare;

/** Any JSON value on one line. */
export function plain(value: unknown): string {
  if (value === null || value === undefined) return "";
  if (Array.isArray(value)) return value.map(plain).filter(Boolean).join(", ");
  if (typeof value === "object") {
    const parts = Object.entries(value).map(([key, inner]) => [key, plain(inner)]);
    return parts.filter(([, text]) => text).map(([key, text]) => `${key}: ${text}`).join("; ");
  }
  return typeof value === "number" ? value.toLocaleString("en", { maximumSignificantDigits: 4 }) : String(value);
}
