import { useCallback, useEffect, useState } from "react";
import { now } from "../../clock";
import { type Draft, draftOf, keepDraft, worthOffering } from "./draft";

/** A text as it is saved; of a new definition the text it begins with, and no tag. */
export interface Saved {
  readonly text: string;
  readonly etag: string;
}

export interface EditedText {
  readonly text: string;
  readonly saved: Saved;
  readonly dirty: boolean;
  /** Counts what came from elsewhere than the keyboard. */
  readonly revision: number;
  /** A draft of an earlier visit that says something else; null: none, or it was decided on. */
  readonly draft: Draft | null;
  readonly type: (text: string) => void;
  /** Puts a text in place of what was typed. */
  readonly replace: (text: string) => void;
  /** What is on the disk now. */
  readonly settle: (saved: Saved, text?: string) => void;
  readonly takeDraft: () => void;
  readonly dropDraft: () => void;
}

const REST = 400;

/** A text that is edited, with its draft in the browser.
 *
 * @param definition - under which the draft is kept
 * @param loaded - the text as the portal has it
 */
export function useText(definition: string, loaded: Saved): EditedText {
  const [saved, setSaved] = useState(loaded);
  const [text, setText] = useState(loaded.text);
  const [revision, setRevision] = useState(0);
  const [seen, setSeen] = useState(loaded.etag);
  const [draft, setDraft] = useState(() => {
    const found = draftOf(definition);
    return worthOffering(found, loaded.text) ? found : null;
  });
  const dirty = text !== saved.text;
  if (loaded.etag !== seen) {
    setSeen(loaded.etag);
    // Saved elsewhere, and no text of ours is lost by showing it. What we have just saved ourselves comes back, too.
    if (loaded.etag !== saved.etag && !dirty && loaded.etag !== "") {
      setSaved(loaded);
      setText(loaded.text);
      setRevision(revision + 1);
    }
  }
  useEffect(() => {
    if (draft) return undefined;
    const timer = setTimeout(() => keepDraft(definition, dirty ? { text, etag: saved.etag, time: now() } : null), REST);
    return () => clearTimeout(timer);
  }, [definition, text, dirty, saved.etag, draft]);
  useEffect(() => {
    if (!dirty) return undefined;
    const warn = (event: BeforeUnloadEvent) => {
      keepDraft(definition, { text, etag: saved.etag, time: now() });
      event.preventDefault();
    };
    window.addEventListener("beforeunload", warn);
    return () => window.removeEventListener("beforeunload", warn);
  }, [definition, dirty, text, saved.etag]);
  const replace = useCallback((next: string) => {
    setText(next);
    setRevision((before) => before + 1);
  }, []);
  return {
    text,
    saved,
    dirty,
    revision,
    draft,
    type: setText,
    replace,
    settle: (next, shown) => {
      setSaved(next);
      if (shown !== undefined) replace(shown);
    },
    takeDraft: () => {
      if (draft) replace(draft.text);
      setDraft(null);
    },
    dropDraft: () => {
      keepDraft(definition, null);
      setDraft(null);
    },
  };
}
