import { type KeyboardEvent, memo, type MouseEvent, useEffect, useId, useMemo, useRef, useState } from "react";
import type { DatasetObject } from "../../api/schema";
import { useWidth } from "../../parts/use-width";
import { useNow } from "../../ui";
import { samplesDone } from "../../ui/counts";
import { count, duration, progress } from "../../ui/format";
import { cellAt, cornerOf, counted, known, moved, type Paths, pathsOf, shapeOf, type ShardState, STATE_WORDS } from "./shard-grid";
import styles from "./shard-grid.module.css";

interface Props {
  readonly objects: readonly DatasetObject[];
  /** Number of the selected object. */
  readonly chosen: number | null;
  readonly onChoose: (object: number | null) => void;
}

/** Milliseconds without a move after which the address follows. */
const REST = 250;

/** A cell a dataset object: filled by what is answered, with a sign where something is wrong. Arrows walk. */
export function ShardGrid({ objects, chosen, onChoose }: Props) {
  const [width, measure] = useWidth();
  const [pointed, setPointed] = useState<number | null>(null);
  const box = useRef<HTMLDivElement>(null);
  const id = useId();
  const shape = useMemo(() => shapeOf(objects.length, width || 300), [objects.length, width]);
  const drawn = width > 0;
  const paths = useMemo(() => (drawn ? [...pathsOf(objects, shape)] : []), [objects, shape, drawn]);
  const [here, setHere] = useSettled(chosen, onChoose);
  const place = useMemo(() => (here === null ? -1 : objects.findIndex((one) => one.index === here)), [objects, here]);
  const at = Math.max(0, place);
  const shown = objects[pointed ?? place];

  const under = (event: MouseEvent) => {
    const inside = event.currentTarget.getBoundingClientRect();
    return cellAt(shape, objects.length, event.clientX - inside.left, event.clientY - inside.top);
  };
  const onKey = (event: KeyboardEvent) => {
    const to = place < 0 ? 0 : moved(shape, objects.length, at, event.key);
    if (to === null || (place < 0 && !event.key.startsWith("Arrow"))) return;
    event.preventDefault();
    setPointed(null);
    setHere(objects[to]?.index ?? null);
    const { y } = cornerOf(shape, to);
    const scroll = box.current;
    if (scroll && (y < scroll.scrollTop || y + shape.pitch > scroll.scrollTop + scroll.clientHeight)) scroll.scrollTop = y - scroll.clientHeight / 2;
  };

  const height = shape.rows * shape.pitch;
  return (
    <div className={styles.whole}>
      <Legend objects={objects} />
      <div ref={box} className={styles.scroll} role="listbox" tabIndex={0} aria-label="Shards" aria-activedescendant={`${id}-here`} onKeyDown={onKey}>
        <div ref={measure} className={styles.inside}>
          {/* One place of the list is there for the keyboard; the mouse has the drawing. */}
          <svg width={shape.columns * shape.pitch} height={height} aria-hidden onMouseMove={(event) => setPointed(under(event))} onMouseLeave={() => setPointed(null)} onClick={(event) => setHere(objects[under(event) ?? -1]?.index ?? null)}>
            <Cells paths={paths} bold={shape.size > 14} />
          </svg>
          {[place, pointed].map((cell, which) => (cell !== null && cell >= 0 ? <Ring key={which} {...cornerOf(shape, cell)} size={shape.size} /> : null))}
          <div id={`${id}-here`} role="option" aria-selected={place >= 0} aria-posinset={at + 1} aria-setsize={objects.length} className="visually-hidden">
            {objects[at] && told(objects[at])}
          </div>
        </div>
      </div>
      <Told object={shown} />
    </div>
  );
}

/** The inspected shard, shown at once; the page gets it when the pointer rests, because every new address draws the page again. */
function useSettled(chosen: number | null, onChoose: (object: number | null) => void) {
  const [here, setHere] = useState(chosen);
  const [told, setTold] = useState(chosen);
  if (chosen !== told) {
    // Changed from outside: by Back, or by a link.
    setTold(chosen);
    setHere(chosen);
  }
  useEffect(() => {
    if (here === told) return undefined;
    const timer = setTimeout(() => {
      setTold(here);
      onChoose(here);
    }, REST);
    return () => clearTimeout(timer);
  }, [here, told, onChoose]);
  return [here, setHere] as const;
}

interface CellsProps {
  readonly paths: readonly (readonly [ShardState, Paths])[];
  readonly bold: boolean;
}

/** All cells: redrawn only when they change, not with every move of the pointer. */
const Cells = memo(function Cells({ paths, bold }: CellsProps) {
  return paths.map(([state, { outline, fill, sign }]) => (
    <g key={state} className={styles[state]}>
      <path d={outline} className={styles.outline} />
      <path d={fill} className={styles.fill} />
      <path d={sign} className={styles.sign} style={{ strokeWidth: bold ? 2.5 : 1.8 }} />
    </g>
  ));
});

/** Beside the drawing, not in it: ten thousand cells are not painted again when it moves. */
function Ring({ x, y, size }: { readonly x: number; readonly y: number; readonly size: number }) {
  return <span className={styles.ring} style={{ width: size + 4, height: size + 4, transform: `translate(${x - 2}px, ${y - 2}px)` }} />;
}

const Legend = memo(function Legend({ objects }: { readonly objects: readonly DatasetObject[] }) {
  const states = useMemo(() => counted(objects), [objects]);
  const shape = { pitch: 14, size: 14, columns: 1, rows: 1 };
  return (
    <ul className={styles.legend}>
      {states.map(({ state, count: amount }) => {
        const half = ["running", "acknowledged", "silent"].includes(state) ? 5 : 0;
        const paths = pathsOf([{ index: 0, state, samples: 10, answered: half }], shape).get(state);
        return (
          <li key={state}>
            <svg width={14} height={14} aria-hidden className={styles[state]}>
              <path d={paths?.outline} className={styles.outline} />
              <path d={paths?.fill} className={styles.fill} />
              <path d={paths?.sign} className={styles.sign} style={{ strokeWidth: 1.8 }} />
            </svg>
            {STATE_WORDS[state]} <strong>{count(amount)}</strong>
          </li>
        );
      })}
    </ul>
  );
});

/** What is known of the object under the pointer, or of the one chosen: a line of its own, so that nothing jumps. */
function Told({ object }: { readonly object: DatasetObject | undefined }) {
  const now = useNow();
  if (!object) return <p className={styles.told}>Point at a cell, or move with the arrow keys.</p>;
  const since = typeof object.since === "number" && known(object.state) === "running" ? ` for ${duration(Math.max(0, now - object.since))}` : "";
  return (
    <p className={styles.told}>
      <strong>Shard {object.index}</strong> {told(object).slice(`shard ${object.index}: `.length)}
      {since}
    </p>
  );
}

function told(object: DatasetObject): string {
  const parts = [
    `${STATE_WORDS[known(object.state)]}, ${samplesDone(object)} (${progress(object.samples > 0 ? object.answered / object.samples : 0)})`,
    object.attempt > 1 ? `attempt ${object.attempt}` : "",
    object.node ? `on ${object.node}` : "",
    object.cause ?? "",
  ];
  return `shard ${object.index}: ${parts.filter(Boolean).join("; ")}`;
}
