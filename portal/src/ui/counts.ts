import type { SampleCounts } from "../api/schema";
import { count, counted } from "./format";

/** What each count counts; the command line, reports and the documentation say the same. */
export const DEFINITIONS = {
  asked: "samples that the run task asks about",
  responded: "samples with an answer, cut ones included",
  ok: "samples whose answer was read and can be scored",
  unreadable: "samples whose answer could not be read, or breaks its schema",
  failed: "samples without an answer: refused, bad, failed or not asked",
  skipped: "bad rows of the dataset, which no request asked about",
  coverage: "ok ÷ (asked + skipped)",
} as const;

/** `20 responded (16 ok, 4 unreadable), 14 failed`. */
export function countsSentence(counts: SampleCounts): string {
  const unread = counts.unreadable ? ` (${count(counts.ok)} ok, ${count(counts.unreadable)} unreadable)` : "";
  const failed = counts.failed ? `, ${count(counts.failed)} failed` : "";
  const skipped = counts.skipped ? `; ${count(counts.skipped)} skipped` : "";
  return `${count(counts.responded)} responded${unread}${failed}${skipped}`;
}

/** `24 of 34 samples done`. */
export function samplesDone(row: { readonly answered: number; readonly samples: number }): string {
  return `${count(row.answered)} of ${counted(row.samples, "sample")} done`;
}
