// Answers of the service under /api/v1.

export interface Fabric {
  revision: string;
  spec: string;
  nodes: {
    name: string[];
    kind: string[];
    tier: number[];
    x: number[];
    y: number[];
    guid: string[];
    model: string[];
    server: string[];
  };
  links: { a: number[]; b: number[]; a_port: number[]; b_port: number[]; label: string[]; gbit_s: number[] };
}

export type LinkState = "up" | "down" | "bad";

export interface Job {
  name: string;
  pattern: string;
  hosts: string[];
  wanted_gbit_s: number;
  gbit_s: number | null;
}

export interface Acknowledgement {
  name: string;
  reason: string;
  caller: string;
  at_s: number;
  until_s: number;
}

export interface Suspect {
  id: string;
  acknowledged: Acknowledgement | null;
  link: string[]; // names of its ports
  kind: string;
  confidence: number; // 0 to 1
  evidence: string[];
  action: string;
  impact?: unknown; // a text, or an object
}

export interface Run {
  id: number;
  command: string; // the command line
  state: string; // waiting, running, done, failed, ended
  progress: string; // its last line
  seconds: number;
  lines: string[]; // empty in the list of runs
}

export interface Live {
  t: number; // seconds since 1970
  revision: string;
  links: { load: (number | null)[]; errors: (number | null)[]; wait: (number | null)[]; state: LinkState[] };
  jobs: Job[];
  sm: { state: string; host: string; standby: string[] | null; sweeps: number } | null;
  suspects: Suspect[];
  drift?: string[]; // differences between the fabric and the ledger
  trouble?: string; // why there is no new reading; "": there is one
  runs: Run[];
}

export interface CableEnd {
  port: string;
  reason: string;
  form: string;
  vendor: string;
  part: string;
  serial: string;
  technology: string;
  length_m: number | null;
  temperature_c: number | null;
  supply_v: number | null;
  receive_dbm: (number | null)[];
  transmit_dbm: (number | null)[];
  bias_ma: number[];
}

export interface WhatIf {
  safe: boolean;
  refusal: string;
  hosts: number;
  cut_off_hosts: number;
  cut_off: string[];
  new_hosts: number;
  engine: string;
  entries: number;
  changed_entries: number;
  changed_switches: number;
  can_deadlock: boolean;
  proof: string;
  alarms: string[];
  jobs: { name: string; before_gbit_s: number; meanwhile_gbit_s: number; after_gbit_s: number; loss: number }[];
  busiest: { port: string; before: number | null; after: number }[];
}

export interface PastEvent {
  t: number;
  kind: string;
  text: string;
}

export interface Past {
  is_recorded: boolean;
  first: number | null; // the recorded range, seconds since 1970; null: nothing yet
  last: number | null;
  events: PastEvent[]; // the newest, in order of time
}

export interface Fact {
  kind: string;
  name: string;
  value: string;
}

export interface RecordedChange {
  t: number;
  kind: string;
  name: string;
  before: string | null;
  after: string | null;
}

export interface LogLine {
  t: number;
  kind: string;
  text: string;
}

export interface Port {
  number: number;
  state: string;
  rate: string; // 4xNDR
  peer: string;
  lid: number;
  pkeys: string[];
  counters: Record<string, number>; // known counters
  rates: Record<string, number>; // per second; known counters that changed
}

export interface NodeDetail {
  name: string;
  kind: string;
  guid: string;
  model: string;
  ports: Port[];
}

export interface Route {
  reaches: boolean;
  sl: number | null;
  pkey: string;
  hops: { node: string; in_port: number; out_port: number; vl: number | null }[]; // port 0: none
  reason: string;
}

export interface Series {
  t: number[];
  v: (number | null)[]; // per second; null: unknown
}

export interface Change {
  action: "create" | "change" | "destroy";
  what: string; // partition, Default, lanes
  name?: string;
  p_key?: string;
  sl?: number;
  ipoib?: boolean;
  members?: { guid: string; port?: string; before: string | null; after: string | null }[];
  changed?: Record<string, { before: unknown; after: unknown }>;
  before?: unknown;
  after?: unknown;
}

export interface Plan {
  summary: string;
  changes: Change[];
  notes: string[];
  drift: string[]; // differences between the fabric and the ledger
}
