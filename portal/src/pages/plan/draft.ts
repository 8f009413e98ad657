/** What was typed and not saved, kept in this browser: it is offered again after a crash. */
import { keep, kept } from "../../storage";

export interface Draft {
  readonly text: string;
  /** Tag of the saved text it was made of; empty: of a new definition. */
  readonly etag: string;
  /** When it was last typed at, seconds since the epoch. */
  readonly time: number;
}

const NAME = "drafts";
const MOST = 20;
const LONGEST = 300_000;

type Drafts = Readonly<Record<string, Draft>>;

function all(): Drafts {
  const found = kept<unknown>(NAME, {});
  return typeof found === "object" && found !== null ? (found as Drafts) : {};
}

/** The draft of a definition; null: there is none. */
export function draftOf(definition: string): Draft | null {
  const found = all()[definition];
  return typeof found?.text === "string" ? found : null;
}

/** Keeps a draft; null forgets it. The oldest go where there are too many. */
export function keepDraft(definition: string, draft: Draft | null): void {
  const others = Object.entries(all()).filter(([name]) => name !== definition);
  const next: [string, Draft][] = draft && draft.text.length <= LONGEST ? [...others, [definition, draft]] : others;
  const newest = next.sort(([, a], [, b]) => b.time - a.time).slice(0, MOST);
  keep(NAME, Object.fromEntries(newest));
}

/** Whether a draft should be offered: it says something else than what is saved. */
export function worthOffering(draft: Draft | null, saved: string): draft is Draft {
  return draft !== null && draft.text !== saved;
}
