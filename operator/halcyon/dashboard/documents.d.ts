// Types of the operator's responses, which `model_page.py`, `model_table.py`, `history.py` and `whatif.py` make. `make typecheck` checks
// the pages against them.

export type State = "stalled" | "unready" | "progressing" | "unknown" | "limited" | "zero" | "ready";

export type Problem = "unready" | "errors" | "slow" | "stalled" | "blind" | "limited";

/** A rollout that is not complete. Unknown numbers are null. */
export interface Rollout {
  phase: string;
  strategy: string;
  message: string;
  updated: number | null;
  pods: number | null;
  /** Percent of the requests for the canary. */
  weight: number | null;
  step: number | null;
  paused: boolean;
}

/** One model of the fleet. Unknown numbers are null. */
export interface Row {
  namespace: string;
  name: string;
  state: State;
  reason: string;
  ready: number | null;
  replicas: number;
  desired: number | null;
  min: number | null;
  max: number | null;
  queue: number | null;
  queue_target: number | null;
  gpu: number | null;
  batch: number | null;
  gpus: number;
  cost: number | null;
  currency: string;
  policy: string;
  image: string;
  created: string;
  why: string;
  /** Objective for the p99, in milliseconds. */
  latency_target: number | null;
  /** Requests are answered, as far as it is known. */
  serves: boolean;
  /** A signal of the last scaling decision is missing. */
  blind: boolean;
  rollout: Rollout | null;
}

/** The same on a page of the fleet, with the values that change. */
export interface ShownRow extends Row {
  sparks: (number | null)[];
  rate: number | null;
  /** 99th percentile of the clients' latency, in milliseconds. */
  latency: number | null;
  /** Mean time in Triton, in milliseconds. */
  in_triton: number | null;
  /** Percent. */
  errors: number | null;
  /** The most urgent first. */
  problems: Problem[];
}

/** A page of the fleet, and the totals over the models of the namespace. */
export interface Fleet {
  synced: boolean;
  total: number;
  matched: number;
  offset: number;
  counts: Record<State, number>;
  problems: Record<Problem, number>;
  /** Models with a problem. */
  troubled: number;
  namespaces: string[];
  /** Requests per second. */
  rate: number | null;
  /** Models with a known rate. */
  reporting: number;
  /** Failing requests per second. */
  errors: number | null;
  /** Models with an objective and a known p99. */
  judged: number;
  rollouts: (Rollout & { namespace: string; name: string })[];
  /** All rollouts that are not complete. */
  rolling: number;
  /** GPUs of the cluster's nodes; if unknown, `why` has the reason. */
  allocatable: { gpus: number | null; why: string };
  gpus: number;
  cost: number | null;
  currency: string;
  rows: ShownRow[];
}

export type Values = (number | null)[];

/** Points by field, `step` seconds apart; `end` is the time of the newest, in seconds since 1970. */
export interface Series {
  end: number;
  step: number;
  replicas: Values;
  ready: Values;
  desired: Values;
  gpu: Values;
  rate: Values;
  waiting: Values;
  in_triton: Values;
  p50: Values;
  p95: Values;
  p99: Values;
  batch: Values;
  rejected: Values;
  lost: Values;
  failed: Values;
  errors: Values;
}

export interface History extends Series {
  past: { end: number; step: number; rate: Values } | null;
}

export interface Condition {
  type: string;
  status: string;
  reason: string;
  message: string;
  lastTransitionTime: string;
}

export interface Signal {
  name: string;
  value?: string;
  target?: string;
  missing?: string;
}

/** `status.scaling` without the decisions. */
export interface Scaling {
  mode?: string;
  policy?: string;
  actuator?: string;
  why?: string;
  limitedBy?: string[];
  signals?: Signal[];
  parts?: { name: string; replicas: number; why: string }[];
}

/** A change of the spec that would help, as in `status.advice`. */
export interface Advice {
  field: string;
  currentValue?: string;
  value: string;
  evidence: string;
  gain: string;
  since: string;
}

/** `status.capacity`. */
export interface Capacity {
  source?: string;
  requestsPerSecond?: string;
  sustainedRequestsPerSecond?: string;
  lines?: { instances: number; constantMilliseconds: string; perRowMilliseconds: string; maxBatchSize: number }[];
  requestsAtOnce?: number;
  observedAt?: string;
  revision?: string;
  gpuProduct?: string;
  why?: string;
  ignored?: string;
}

export interface Decision {
  time: string;
  before: number;
  after: number;
  why: string;
}

export type PhaseName = "pending" | "pulling" | "fetching" | "starting" | "loading";

export interface Pod {
  name: string;
  state: string;
  reason: string;
  message: string;
  revision: string;
  restarts: number;
  /** Seconds since 1970, as in the fields below. */
  created: number | null;
  ready_at: number | null;
  phases: { name: PhaseName; begin: number; end: number | null }[];
  /** Container whose log explains the state; `previous`: its last run. Null before any has run. */
  log: { container: string; previous: boolean } | null;
}

export interface StoredRevision {
  name: string;
  number: number;
  role: "current" | "target" | "";
  /** Kind of the line (" ", "+" or "-") and its text. */
  diff: [string, string][];
  first: boolean;
}

/** A model's page. */
export interface Model {
  model: Row;
  generation: number;
  note: string;
  largest_batch: number | null;
  latency_target_ms: number | null;
  /** The most urgent first. */
  problems: Problem[];
  /** spec.traffic.accessLog: None, Errors or All. */
  access_log: string;
  conditions: Condition[];
  scaling: Scaling;
  capacity: Capacity;
  decisions: Decision[];
  /** The largest gain first. */
  advice: Advice[];
  events: { at: number; type: string; reason: string; message: string }[];
  revision: { current?: string; target?: string };
  address: { url?: string };
  pods: Pod[];
  balancers: Pod[];
  now: {
    rate: number | null;
    waiting: number | null;
    latency_ms: number | null;
    batch: number | null;
    gpu: number | null;
    rejected: number | null;
    lost: number | null;
    failed: number | null;
    /** A share, 0 to 1. */
    errors: number | null;
  };
  newest: Series;
}

export interface Outcome {
  latency_ms: number | null;
  min: number;
  max: number;
  replica_hours: number;
  peak: number | null;
  short_hours: number;
}

export interface WhatIf {
  /** Why there is no result; then there are no other fields. */
  why?: string;
  end: number;
  step: number;
  current: Values;
  alternative: Values;
  known_hours: number;
  totals: { current: Outcome; alternative: Outcome };
}

/** Base URLs of the site's other tools; empty: no link. */
export interface Links {
  grafana: string;
  alerts: string;
  runbooks: string;
}

export interface Session {
  /** There is nothing to sign out of: no sign-in is needed, or a proxy has signed the user in. */
  open: boolean;
  user: string;
  links: Links;
  /** Name of the cluster; empty if it has none. */
  cluster: string;
}

/** Callbacks of a page to the frame around it. */
export interface PageListener {
  state: (live: boolean, why: string) => void;
  signIn: (error: { message: string }) => void;
  links: () => Links;
  /** Returns the name of the cluster; empty if it has none. */
  cluster: () => string;
}

/** A measured number of `halcyon bench`. Its fields are described in docs/reference/bench.md. */
export interface BenchFigure {
  value: number | null;
  interval: [number, number] | null;
  reason: string;
}

export type BenchLatencies = Record<"mean" | "p50" | "p90" | "p95" | "p99" | "p99_9" | "max", BenchFigure>;

/** A result of `halcyon bench`, as far as the pages show it. */
export interface BenchResult {
  made_at: string;
  scenario: { kind: string; preset: string; rate_rps: number | null; callers: number | null; seed: number };
  run: { valid: boolean; invalid_because: string[]; warm_up_s: number; measured_s: number };
  requests: { due: number; answered: number };
  throughput: BenchFigure;
  latency: BenchLatencies;
  from_send: BenchLatencies;
  first_byte: BenchLatencies;
  failures: { outcome: string; message: string; count: number }[];
  client: { limit: string; evidence: string };
  place: { kind: string; revision: string | null; image: string | null; image_id: string | null; node: string | null; replicas: number | null; arguments: string[]; ended: string | null } | null;
  phases: { parts: { name: string; side: string; mean: BenchFigure }[] } | null;
  verdict: { sentence: string; unsure: boolean; others: string[] } | null;
}

/** A BatchInference of a model. Values that are unknown are null. */
export interface Batch {
  name: string;
  created: string | null;
  state: string;
  message: string;
  late: string;
  total: number | null;
  done: number | null;
  failed: number | null;
  rate: string | null;
  eta: string | null;
  completed: string | null;
}
