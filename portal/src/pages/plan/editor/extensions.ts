import { autocompletion, closeBrackets, closeBracketsKeymap, completionKeymap } from "@codemirror/autocomplete";
import { defaultKeymap, history, historyKeymap, indentWithTab } from "@codemirror/commands";
import { yaml } from "@codemirror/lang-yaml";
import { bracketMatching, codeFolding, foldGutter, foldKeymap, indentUnit } from "@codemirror/language";
import { type Diagnostic, lintGutter, lintKeymap } from "@codemirror/lint";
import { highlightSelectionMatches, searchKeymap } from "@codemirror/search";
import { EditorState, type Extension, Prec, type Text } from "@codemirror/state";
import { drawSelection, EditorView, highlightActiveLine, highlightActiveLineGutter, highlightSpecialChars, keymap, lineNumbers } from "@codemirror/view";
import type { Note } from "../../../api/schema";
import { hover, type Known, source } from "./complete";
import { lineStarts, meant, placeOf } from "./notes";
import { theme } from "./theme";

export interface Told {
  readonly label: string;
  readonly known: () => Known;
  readonly onText: (text: string) => void;
  readonly onLine: (line: number) => void;
  readonly onSave: () => void;
  readonly onCheck: () => void;
}

/** All that the editor of a definition can do. */
export function extensions(told: Told, readOnly: boolean): readonly Extension[] {
  const own = [
    { key: "Mod-s", preventDefault: true, run: done(told.onSave) },
    { key: "Mod-Enter", preventDefault: true, run: done(told.onCheck) },
  ];
  return [
    Prec.highest(keymap.of(own)),
    lineNumbers(),
    lintGutter(),
    codeFolding(),
    foldGutter(),
    history(),
    drawSelection(),
    highlightSpecialChars(),
    highlightActiveLine(),
    highlightActiveLineGutter(),
    highlightSelectionMatches(),
    bracketMatching(),
    closeBrackets(),
    indentUnit.of("  "),
    EditorState.tabSize.of(2),
    EditorState.readOnly.of(readOnly),
    yaml(),
    autocompletion({ override: [source(told.known)], icons: false, maxRenderedOptions: 60 }),
    hover(told.known),
    keymap.of([...closeBracketsKeymap, ...completionKeymap, ...foldKeymap, ...lintKeymap, ...searchKeymap, ...historyKeymap, ...defaultKeymap, indentWithTab]),
    EditorView.contentAttributes.of({ "aria-label": told.label, tabindex: "0", spellcheck: "false", autocorrect: "off", autocapitalize: "off" }),
    EditorView.updateListener.of((update) => {
      if (update.docChanged) told.onText(update.state.doc.toString());
      if (update.selectionSet) told.onLine(update.state.doc.lineAt(update.state.selection.main.head).number);
    }),
    theme,
  ];
}

function done(act: () => void): () => boolean {
  return () => {
    act();
    return true;
  };
}

/** The server's problems as marks; those of other definitions are in the list alone. */
export function diagnosticsOf(doc: Text, notes: readonly Note[]): Diagnostic[] {
  const text = doc.toString();
  const starts = lineStarts(text);
  return notes
    .filter((note) => !note.file)
    .map((note) => {
      const { from, to } = placeOf(text, starts, note);
      const word = meant(note, text.slice(from, to));
      const actions = word === null ? [] : [{ name: `Write ${word}`, apply: (view: EditorView, start: number, end: number) => view.dispatch({ changes: { from: start, to: end, insert: word } }) }];
      const message = note.remedy ? `${note.message}\n${note.remedy}` : note.message;
      return { from, to, severity: note.severity, message, actions };
    })
    .sort((a, b) => a.from - b.from);
}
