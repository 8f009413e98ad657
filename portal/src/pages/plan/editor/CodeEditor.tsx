import { setDiagnostics } from "@codemirror/lint";
import { EditorState } from "@codemirror/state";
import { EditorView } from "@codemirror/view";
import { useEffect, useImperativeHandle, useRef, type Ref } from "react";
import type { Note } from "../../../api/schema";
import type { Known } from "./complete";
import { diagnosticsOf, extensions } from "./extensions";
import styles from "./editor.module.css";

/** What a page can have the editor do. */
export interface EditorHandle {
  /** Goes to a line, both from 1, and takes the focus. */
  jump(line: number, column?: number): void;
}

interface Props {
  readonly label: string;
  /** The text to begin with; another `revision` replaces what was typed. */
  readonly text: string;
  readonly revision: number;
  readonly readOnly: boolean;
  readonly notes: readonly Note[];
  readonly known: Known;
  readonly onText: (text: string) => void;
  readonly onLine: (line: number) => void;
  readonly onSave: () => void;
  readonly onCheck: () => void;
  readonly ref: Ref<EditorHandle>;
}

/** A definition's text under CodeMirror. */
export default function CodeEditor(props: Props) {
  const { label, text, revision, readOnly, notes, ref } = props;
  const place = useRef<HTMLDivElement>(null);
  const view = useRef<EditorView | null>(null);
  const newest = useRef(props);
  useEffect(() => {
    newest.current = props;
  });
  useEffect(() => {
    const told = {
      label,
      known: () => newest.current.known,
      onText: (typed: string) => newest.current.onText(typed),
      onLine: (line: number) => newest.current.onLine(line),
      onSave: () => newest.current.onSave(),
      onCheck: () => newest.current.onCheck(),
    };
    const made = new EditorView({
      state: EditorState.create({ doc: newest.current.text, extensions: [...extensions(told, readOnly)] }),
      parent: place.current ?? document.body,
    });
    view.current = made;
    return () => {
      made.destroy();
      view.current = null;
    };
  }, [label, readOnly]);
  useEffect(() => {
    const editor = view.current;
    const now = editor?.state.doc.toString();
    if (editor && now !== undefined && now !== text) editor.dispatch({ changes: changeOf(now, text) });
    // Only a new revision replaces what is typed; the text itself follows the typing.
    // eslint-disable-next-line react-hooks/exhaustive-deps
  }, [revision]);
  useEffect(() => {
    const editor = view.current;
    if (editor) editor.dispatch(setDiagnostics(editor.state, diagnosticsOf(editor.state.doc, notes)));
  }, [notes]);
  useImperativeHandle(ref, () => ({
    jump(line, column = 1) {
      const editor = view.current;
      if (!editor) return;
      const at = editor.state.doc.line(Math.min(Math.max(line, 1), editor.state.doc.lines));
      const anchor = Math.min(at.from + column - 1, at.to);
      editor.dispatch({ selection: { anchor }, effects: EditorView.scrollIntoView(anchor, { y: "center" }) });
      editor.focus();
    },
  }));
  return <div ref={place} className={styles.editor} />;
}

/** The change from a text to another without what both begin and end with: the cursor elsewhere stays. */
function changeOf(before: string, after: string): { from: number; to: number; insert: string } {
  const most = Math.min(before.length, after.length);
  let same = 0;
  while (same < most && before[same] === after[same]) same += 1;
  let tail = 0;
  while (tail < most - same && before[before.length - 1 - tail] === after[after.length - 1 - tail]) tail += 1;
  return { from: same, to: before.length - tail, insert: after.slice(same, after.length - tail) };
}
