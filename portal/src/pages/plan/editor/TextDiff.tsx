import { yaml } from "@codemirror/lang-yaml";
import { MergeView, unifiedMergeView } from "@codemirror/merge";
import { EditorState } from "@codemirror/state";
import { EditorView, lineNumbers } from "@codemirror/view";
import { useEffect, useRef } from "react";
import { theme } from "./theme";
import styles from "./editor.module.css";

interface Props {
  readonly before: string;
  readonly after: string;
  /** Names of both, for those who do not see them. */
  readonly labels: readonly [before: string, after: string];
  /** Beside each other instead of below. */
  readonly beside?: boolean;
}

const COLLAPSE = { margin: 3, minSize: 6 };

/** Two texts, and where they differ. */
export default function TextDiff({ before, after, labels, beside = false }: Props) {
  const place = useRef<HTMLDivElement>(null);
  const [one, other] = labels;
  useEffect(() => {
    const parent = place.current;
    if (!parent) return undefined;
    const shown = (label: string) => [lineNumbers(), yaml(), theme, EditorState.readOnly.of(true), EditorView.contentAttributes.of({ "aria-label": label, tabindex: "0" })];
    if (beside) {
      const view = new MergeView({ a: { doc: before, extensions: shown(one) }, b: { doc: after, extensions: shown(other) }, parent, collapseUnchanged: COLLAPSE });
      return () => view.destroy();
    }
    const merge = unifiedMergeView({ original: before, mergeControls: false, collapseUnchanged: COLLAPSE });
    const view = new EditorView({ state: EditorState.create({ doc: after, extensions: [...shown(`${one} and ${other}`), merge] }), parent });
    return () => view.destroy();
  }, [before, after, one, other, beside]);
  return <div ref={place} className={styles.diff} />;
}
