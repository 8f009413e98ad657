import { defaultRangeExtractor, type Range, useVirtualizer } from "@tanstack/react-virtual";
import { type KeyboardEvent, useEffect, useMemo, useRef, useState } from "react";
import type { Matrix as MatrixModel } from "../../api/schema";
import { useWidth } from "../../parts/use-width";
import { MatrixCellLink } from "./MatrixCell";
import styles from "./matrix.module.css";
import { shades } from "./shades";

interface Props {
  readonly experiment: string;
  readonly matrix: MatrixModel;
}

interface Place {
  readonly row: number;
  readonly column: number;
}

const ROW = 46;
const HEAD = 44;

/** Rows seen at once before the matrix scrolls. */
const SEEN = 14;

/** Models down, datasets across: how far each run task is, and what came out. Arrows walk, Enter opens. */
export function Matrix({ experiment, matrix }: Props) {
  const { rows, columns } = matrix;
  const [width, measure] = useWidth();
  const narrow = width > 0 && width < 560;
  const longest = useMemo(() => Math.max(5, ...rows.flatMap((row) => [row.model.length, row.variant.length])), [rows]);
  const head = Math.min(narrow ? 132 : 240, Math.round(longest * 9) + 28);
  const room = Math.max(0, width - head);
  const column = Math.max(128, Math.min(240, Math.floor((room - 2) / Math.max(1, columns.length))));
  const box = useRef<HTMLDivElement>(null);
  const [at, setAt] = useState<Place>({ row: 0, column: 0 });
  const walked = useRef(false);

  const including = (place: number) => (range: Range) => [...new Set([...defaultRangeExtractor(range), place])].filter((one) => one < range.count).sort((a, b) => a - b);
  // eslint-disable-next-line react-hooks/incompatible-library -- it is used here alone
  const down = useVirtualizer({ count: rows.length, getScrollElement: () => box.current, estimateSize: () => ROW, overscan: 6, paddingStart: HEAD, scrollPaddingStart: HEAD, rangeExtractor: including(at.row) });
  const across = useVirtualizer({ horizontal: true, count: columns.length, getScrollElement: () => box.current, estimateSize: () => column, overscan: 3, paddingStart: head, scrollPaddingStart: head, rangeExtractor: including(at.column) });
  useEffect(() => across.measure(), [across, column, head]);

  const steps = useMemo(
    () => columns.map((_, place) => shades(rows.map((row) => row.cells[place] ?? null), matrix.higher_is_better)),
    [columns, rows, matrix.higher_is_better],
  );

  useEffect(() => {
    if (walked.current) box.current?.querySelector<HTMLElement>('[data-here="true"]')?.focus();
  }, [at]);
  const walk = (event: KeyboardEvent) => {
    const to = moved(at, event, rows.length, columns.length);
    if (!to) return;
    event.preventDefault();
    walked.current = true;
    down.scrollToIndex(to.row);
    across.scrollToIndex(to.column);
    setAt(to);
  };

  const lines = across.getVirtualItems();
  const label = `${matrix.ml_task}: models in rows, datasets in columns${matrix.metric ? `, ${matrix.metric}` : ""}`;
  return (
    <div ref={measure} className={styles.whole}>
      {/* The cells have the focus, the grid their keys. */}
      {/* eslint-disable-next-line jsx-a11y/interactive-supports-focus */}
      <div ref={box} className={styles.box} role="grid" aria-label={label} aria-rowcount={rows.length + 1} aria-colcount={columns.length + 1} onKeyDown={walk} style={{ maxHeight: HEAD + SEEN * ROW, width: across.getTotalSize() + 2 }}>
        <div className={styles.all} style={{ height: down.getTotalSize(), width: across.getTotalSize() }}>
          <div role="row" aria-rowindex={1} className={styles.head} style={{ height: HEAD }}>
            <div role="columnheader" aria-colindex={1} className={styles.corner} style={{ width: head }}>
              Model
            </div>
            {lines.map((item) => (
              <div key={item.key} role="columnheader" aria-colindex={item.index + 2} className={styles.dataset} style={{ left: item.start, width: item.size }} title={columns[item.index]}>
                <span className={styles.name}>{columns[item.index]}</span>
              </div>
            ))}
          </div>
          {down.getVirtualItems().map((item) => {
            const row = rows[item.index];
            if (!row) return null;
            return (
              <div key={item.key} role="row" aria-rowindex={item.index + 2} className={styles.row} style={{ top: item.start, height: ROW, width: "100%" }}>
                <div role="rowheader" aria-colindex={1} className={styles.model} style={{ width: head }} title={[row.model, row.variant].filter(Boolean).join(" · ")}>
                  <span className={styles.name}>{row.model}</span>
                  {row.variant && <span className={styles.variant}>{row.variant}</span>}
                </div>
                {lines.map((line) => {
                  const here = at.row === item.index && at.column === line.index;
                  const cell = row.cells[line.index] ?? null;
                  return (
                    <div key={line.key} role="gridcell" aria-colindex={line.index + 2} className={styles.cell} style={{ left: line.start, width: line.size }} {...(cell ? {} : { tabIndex: here ? 0 : -1, "data-here": here })}>
                      {cell ? (
                        <MatrixCellLink experiment={experiment} cell={cell} shade={steps[line.index]?.[item.index] ?? null} here={here} about={`${row.model}${row.variant ? ` ${row.variant}` : ""}, ${columns[line.index] ?? ""}`} onFocus={() => setAt({ row: item.index, column: line.index })} />
                      ) : (
                        <span className={styles.none} aria-label="no run task">
                          ·
                        </span>
                      )}
                    </div>
                  );
                })}
              </div>
            );
          })}
        </div>
      </div>
    </div>
  );
}

function moved(at: Place, { key, ctrlKey }: KeyboardEvent, rows: number, columns: number): Place | null {
  const row = { ArrowDown: at.row + 1, ArrowUp: at.row - 1, PageDown: at.row + SEEN, PageUp: at.row - SEEN }[key];
  const column = { ArrowRight: at.column + 1, ArrowLeft: at.column - 1, Home: 0, End: columns - 1 }[key];
  if (row === undefined && column === undefined) return null;
  const edge = ctrlKey && (key === "Home" || key === "End");
  return {
    row: Math.min(Math.max(edge ? (key === "Home" ? 0 : rows - 1) : (row ?? at.row), 0), rows - 1),
    column: Math.min(Math.max(column ?? at.column, 0), columns - 1),
  };
}
