import { describe, expect, it } from "vitest";

import type { Regression, TrendRow } from "../../api/schema";
import { parseSearch } from "../../app/search";
import { alarmOf, isMuted, mutedOf, passing, sentence, sinceOf } from "./rows";
import { search as definition } from "./search";

const NOW = 1_800_000_000;
const search = (written = "") => definition.values(parseSearch(written));

const POINTS = [1, 2].map((time) => ({ experiment: `e${time}`, time, value: 0.9, low: null, high: null }));

function change(more: Partial<Regression> = {}): Regression {
  return { id: "c", before: 0.9, after: 0.8, worse: true, first: "e2", last_good: "e1", time: NOW - 99, acknowledged: null, ...more };
}

function trend(name: string, changes: readonly Regression[], more: Partial<TrendRow> = {}): TrendRow {
  return {
    id: name, plan: "nightly", run_task: "invoices", name, kind: "quality", model: "org/tiny", signature: "",
    higher_is_better: true, unit: "", points: POINTS, changes, ...more,
  }; // prettier-ignore
}

const muted = change({ acknowledged: { reason: "known", by: "ada", time: NOW - 9, until: NOW + 9 } });

describe("a change", () => {
  it("is muted until its acknowledgement ends", () => {
    expect(isMuted(muted, NOW)).toBe(true);
    expect(isMuted(muted, NOW + 10)).toBe(false);
    expect(isMuted(change(), NOW)).toBe(false);
    expect(isMuted(change({ acknowledged: { reason: "x", by: "ada", time: 1, until: null } }), NOW)).toBe(true);
  });

  it("is an alarm as long as no better level followed", () => {
    expect(alarmOf(trend("a", [change()]), NOW)?.id).toBe("c");
    expect(alarmOf(trend("a", [change(), change({ worse: false })]), NOW)).toBeNull();
    expect(alarmOf(trend("a", [muted]), NOW)).toBeNull();
    expect(mutedOf(trend("a", [muted]), NOW)?.id).toBe("c");
    expect(alarmOf(trend("a", []), NOW)).toBeNull();
  });
});

describe("the rows shown", () => {
  const rows = [trend("anls", [change()]), trend("ttft_ms", [muted], { kind: "speed" }), trend("cer", [], { plan: "weekly" })];
  const names = (written: string) => passing(rows, search(written), NOW).map((row) => row.name);

  it("pass all filters of the URL", () => {
    expect(names("")).toEqual(["anls", "ttft_ms", "cer"]);
    expect(names("?fell=1")).toEqual(["anls"]);
    expect(names("?muted=0")).toEqual(["anls", "cer"]);
    expect(names("?text=WEEKLY")).toEqual(["cer"]);
    expect(names("?text=invoices&fell=1")).toEqual(["anls"]);
  });

  it("are of more than one run", () => {
    expect(passing([trend("once", [], { points: POINTS.slice(1) })], search(), NOW)).toEqual([]);
  });

  it("are told in a sentence", () => {
    expect(sentence(rows, NOW)).toBe("1 of 3 trends is at a worse level; 1 more acknowledged.");
    expect(sentence([trend("a", [])], NOW)).toBe("none of 1 trend is at a worse level.");
  });
});

describe("since when", () => {
  it("is asked for in whole days", () => {
    expect(sinceOf(search("?since=all"), NOW)).toBe(0);
    expect(sinceOf(search(), NOW) % 86_400).toBe(0);
  });
});
