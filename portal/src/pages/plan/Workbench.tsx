import { lazy, Suspense, useMemo, useRef, useState } from "react";
import { useApi } from "../../api";
import type { DefinitionRow, Note } from "../../api/schema";
import { usePlace } from "../../app/place";
import { usePageTitle } from "../../app/title";
import { Skeleton, useHotkeys } from "../../ui";
import type { EditorHandle } from "./editor/CodeEditor";
import type { Known } from "./editor/complete";
import { Below } from "./Below";
import { Beside } from "./Beside";
import { Dialogs } from "./Dialogs";
import { DraftOffer } from "./DraftOffer";
import { type DefinitionKind, ONE } from "./kinds";
import { Outline } from "./Outline";
import { Toolbar } from "./Toolbar";
import { useActions } from "./use-actions";
import { useCheck } from "./use-check";
import { type Saved, useText } from "./use-text";
import styles from "./plan.module.css";

const CodeEditor = lazy(() => import("./editor/CodeEditor"));
const NOTES: readonly Note[] = [];

interface Props {
  /** The file; null: it is new. */
  readonly row: DefinitionRow | null;
  readonly loaded: Saved;
  readonly kind: DefinitionKind;
}

/** The text of a plan or definition, with everything around it. */
export function Workbench({ row, loaded, kind }: Props) {
  const { search, update } = usePlace("/plans/$definition");
  const edited = useText(row?.id ?? `new ${kind}`, loaded);
  const check = useCheck({ kind, id: row?.id ?? null, name: row ? null : search.name || null }, edited.text);
  const known = useKnown(kind);
  const editor = useRef<EditorHandle>(null);
  const [line, setLine] = useState(1);
  const readOnly = row !== null && !row.writable;
  const actions = useActions({ row, kind, edited });
  const jump = (to: number, column?: number) => {
    editor.current?.jump(to, column);
    update({ line: to }, { replace: true });
  };
  const onCheck = () => {
    update({ tab: "estimate" }, { replace: true });
    check.estimate();
  };
  usePageTitle(`${edited.dirty ? "• " : ""}${row?.name ?? `New ${ONE[kind]}`}`);
  useHotkeys({ "mod+s": ["save", () => void actions.save()], "mod+Enter": ["check and estimate", onCheck] }, "Editor");
  const first = useRef(search.line);
  const ready = (handle: EditorHandle | null) => {
    editor.current = handle;
    if (!handle || first.current === null) return;
    handle.jump(first.current);
    first.current = null;
  };
  return (
    <div className={styles.bench}>
      <Toolbar row={row} kind={kind} edited={edited} check={check} actions={actions} readOnly={readOnly} onCheck={onCheck} />
      {edited.draft && <DraftOffer edited={edited} draft={edited.draft} />}
      <div className={styles.middle} data-form={kind === "plans" && search.side === "form"}>
        <Beside kind={kind} edited={edited} readOnly={readOnly}>
          <Outline text={edited.text} line={line} notes={check.found?.problems ?? NOTES} onJump={jump} />
        </Beside>
        <section className={styles.code} aria-label="Text">
          <Suspense fallback={<Skeleton lines={12} />}>
            <CodeEditor
              ref={ready}
              label={`${row?.name ?? `New ${ONE[kind]}`}, YAML. Tab indents; Escape, then Tab, leaves the editor.`}
              text={edited.text}
              revision={edited.revision}
              readOnly={readOnly}
              notes={check.found?.problems ?? NOTES}
              known={known}
              onText={edited.type}
              onLine={setLine}
              onSave={() => void actions.save()}
              onCheck={onCheck}
            />
          </Suspense>
        </section>
      </div>
      <Below row={row} kind={kind} edited={edited} check={check} onJump={jump} />
      <Dialogs row={row} kind={kind} edited={edited} check={check} actions={actions} />
    </div>
  );
}

/** The schema of a kind, and the names of all definitions. */
function useKnown(kind: DefinitionKind): Known {
  const schema = useApi("/schemas/{kind}", { path: { kind } }, { fresh: Infinity });
  const rows = useApi("/definitions", { query: {} }, { fresh: 30_000 });
  const names = useMemo(() => {
    const found: Record<string, string[]> = {};
    for (const one of rows.data ?? []) if (one.counts && !one.name.endsWith(".dev")) (found[one.kind] ??= []).push(one.name);
    return found;
  }, [rows.data]);
  const known = useMemo(() => ({ schema: schema.data ?? null, names }), [schema.data, names]);
  return known;
}
