/** What samples are filtered by: as the API has it, as chips, and as facets change it. */

import { isBundle } from "../../api/bundle";
import { number } from "../../ui/format";
import { type Search, search as definition } from "./search";
import { outcomeLook } from "../../ui/states";

/** The part of the URL that the API filters and orders by. */
export type SampleFilter = Omit<Search, "at" | "image" | "raw" | "diff" | "boxes">;

/** A filter that facets change: other lists have a part of it. */
type FacetFilter = Partial<SampleFilter> & Pick<SampleFilter, "where">;

/** A part of a filter as a chip: what it says, and what takes it away. */
export interface Condition {
  readonly text: string;
  readonly away: Partial<SampleFilter>;
}

/** The part of a search that the API filters and orders by; a bundle knows all samples and the wrong ones, in one order. */
export function filterOf(search: Search): SampleFilter {
  const known = isBundle() ? definition.values({ wrong: search.wrong }) : search;
  const { text, outcome, reason, mistake, metric, low, high, latency_over, where, wrong, flagged, sort, order } = known;
  return { text, outcome, reason, mistake, metric, low, high, latency_over, where, wrong, flagged, sort, order };
}

/** No filter; the order stays. */
export const NOTHING = {
  text: "",
  outcome: "",
  reason: "",
  mistake: "",
  low: null,
  high: null,
  latency_over: null,
  where: [],
  wrong: false,
  flagged: false,
} as const satisfies Partial<SampleFilter>;

/** Each condition, for chips that take it away again. */
export function conditions(filter: SampleFilter): Condition[] {
  const found: Condition[] = [];
  const add = (text: string, away: Partial<SampleFilter>) => found.push({ text, away });
  if (filter.wrong) add("wrong only", { wrong: false });
  if (filter.flagged) add("flagged only", { flagged: false });
  if (filter.text) add(`text “${filter.text}”`, { text: "" });
  if (filter.outcome) add(`request: ${outcomeLook(filter.outcome).word}`, { outcome: "" });
  if (filter.reason) add(`unreadable because ${filter.reason}`, { reason: "" });
  if (filter.mistake) add(`mistake: ${filter.mistake}`, { mistake: "" });
  for (const one of filter.where) {
    const [column, value] = parted(one);
    add(`${column}: ${value || "(none)"}`, { where: filter.where.filter((other) => other !== one) });
  }
  if (filter.low !== null && filter.low === filter.high) {
    add(`score ${number(filter.low)}`, { low: null, high: null });
  } else {
    if (filter.low !== null) add(`score ≥ ${number(filter.low)}`, { low: null });
    if (filter.high !== null) add(`score ≤ ${number(filter.high)}`, { high: null });
  }
  if (filter.latency_over !== null) add(`latency > ${filter.latency_over} s`, { latency_over: null });
  return found;
}

/** Fields that have one value at a time. */
const PLAIN = ["outcome", "reason", "mistake"] as const;

function isPlain(field: string): field is (typeof PLAIN)[number] {
  return (PLAIN as readonly string[]).includes(field);
}

/** Whether a facet's value is filtered by. */
export function hasFacet(filter: FacetFilter, field: string, value: string): boolean {
  if (isPlain(field)) return filter[field] === value;
  if (field !== "score") return filter.where.includes(`${field}:${value}`);
  const range = scoreRange(value);
  return range !== null && filter.low === range[0] && filter.high === range[1];
}

/** What changes when a facet's value is chosen: it is taken in, or out where it was in. */
export function withFacet(filter: FacetFilter, field: string, value: string): Partial<SampleFilter> {
  const within = hasFacet(filter, field, value);
  if (field === "score") {
    const range = within ? null : scoreRange(value);
    return { low: range?.[0] ?? null, high: range?.[1] ?? null };
  }
  if (isPlain(field)) return { [field]: within ? "" : value };
  const item = `${field}:${value}`;
  return { where: within ? filter.where.filter((one) => one !== item) : [...filter.where, item] };
}

/** The ends of a facet of scores, `0.2..0.4`; null: it is none. */
export function scoreRange(value: string): readonly [number, number] | null {
  const [low, high] = value.split("..").map(Number);
  return low === undefined || high === undefined || Number.isNaN(low + high) ? null : [low, high];
}

/** Parameters for the API; a list stands for a repeated one, and what is not filtered by is not there. */
export function apiQuery(filter: SampleFilter): Record<string, unknown> {
  const set = (value: unknown) =>
    Array.isArray(value) ? value.length > 0 : value !== null && value !== "" && value !== false;
  const { sort, order, ...rest } = filter;
  const found = Object.fromEntries(Object.entries(rest).filter(([, value]) => set(value)));
  return sort === "place" && order === "asc" ? found : { ...found, sort, order };
}

/** A condition on metadata as its column and its value, which may have colons too. */
function parted(condition: string): readonly [string, string] {
  const at = condition.indexOf(":");
  return at < 0 ? [condition, ""] : [condition.slice(0, at), condition.slice(at + 1)];
}
