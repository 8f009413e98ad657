/** Facets on the page: what is offered first, and which digit chooses what. */

import type { Facet } from "../../api/schema";
import { number } from "../../ui/format";
import { scoreRange } from "./filter";
import { outcomeLook } from "../../ui/states";

/** Values of a facet that stand on the page; the rest is behind a button. */
export const SHOWN = 5;

/** Values that a digit chooses. */
const DIGITS = 9;

const WORDS: Readonly<Record<string, string>> = { outcome: "request", reason: "unreadable because", mistake: "mistake", score: "score" };

export interface FacetValue {
  readonly field: string;
  readonly value: string;
  /** For people. */
  readonly text: string;
  readonly count: number;
  /** The key that chooses it, 1 to 9. */
  readonly digit: number | null;
}

export interface FacetGroup {
  readonly field: string;
  readonly title: string;
  readonly values: readonly FacetValue[];
  /** Behind a button. */
  readonly more: readonly FacetValue[];
}

/** Facets that can tell samples apart, with digits for the first nine values; those chosen always stay. */
export function grouped(facets: readonly Facet[], chosen: (field: string, value: string) => boolean): FacetGroup[] {
  let digit = 0;
  return facets
    .filter(({ field, counts }) => counts.length > 1 || (field === "mistake" && counts.length > 0) || counts.some(([value]) => chosen(field, value)))
    .map(({ field, counts }) => {
      const first = counts.filter(([value], at) => at < SHOWN || chosen(field, value));
      const more = counts.filter(([value], at) => at >= SHOWN && !chosen(field, value));
      const made = ([value, count]: readonly [string, number], key: number | null) => ({ field, value, text: textOf(field, value), count, digit: key });
      const values = first.map((one) => made(one, digit < DIGITS ? ++digit : null));
      return {
        field,
        title: WORDS[field] ?? field,
        values,
        more: more.map((one) => made(one, null)),
      };
    });
}

/** The keys that choose the first values. */
export function facetKeys(groups: readonly FacetGroup[], onTurn: (value: FacetValue) => void): Record<string, readonly [string, () => void]> {
  const keyed = groups.flatMap((group) => group.values.filter((value) => value.digit !== null).map((value) => ({ group, value })));
  return Object.fromEntries(keyed.map(({ group, value }) => [String(value.digit), [`${group.title}: ${value.text}`.replace(/\s+/g, " ").slice(0, 60), () => onTurn(value)]]));
}

function textOf(field: string, value: string): string {
  if (field === "outcome") return outcomeLook(value).word;
  const range = field === "score" ? scoreRange(value) : null;
  if (range === null) return value || "(none)";
  const [low, high] = range;
  return low === high ? number(low) : `${number(low)} – ${number(high)}`;
}
