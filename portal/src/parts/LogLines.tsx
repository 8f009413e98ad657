import { useVirtualizer } from "@tanstack/react-virtual";
import { type CSSProperties, type Ref, useEffect, useImperativeHandle, useLayoutEffect, useMemo, useRef } from "react";
import { join } from "../ui/join";
import { indexAt, type Line, marked, numbersOf } from "./log-buffer";
import styles from "./log.module.css";

export interface LogLinesHandle {
  /** Offset of the first line in view. */
  top(): number;
}

interface Props {
  readonly ref: Ref<LogLinesHandle>;
  readonly lines: readonly Line[];
  /** Number of the first one; null: lines have no numbers. */
  readonly first: number | null;
  readonly words: string;
  readonly wrap: boolean;
  /** Offset of the line that is looked at: it comes into view. */
  readonly chosen: number | null;
  readonly label: string;
  /** Whether to stay at the last line. */
  readonly atEnd: boolean;
  readonly onChoose: (at: number) => void;
  /** Whether to read back until there is enough to scroll. */
  readonly fill: boolean;
  /** A user scrolled back. */
  readonly onLeave: () => void;
  /** The begin or the end of what is held comes into view. */
  readonly onTop: () => void;
  readonly onBottom: () => void;
}

/** Height of a line that is not wrapped, pixels; as in the style sheet. */
const HEIGHT = 19;

/** Pixels before an end at which more is read. */
const NEAR = 40 * HEIGHT;

/** Lines of a log, those in view alone. */
export function LogLines({ ref, lines, first, words, wrap, chosen, label, atEnd, fill, onChoose, onLeave, onTop, onBottom }: Props) {
  const box = useRef<HTMLDivElement>(null);
  const before = useRef(0);
  // eslint-disable-next-line react-hooks/incompatible-library -- it is used here alone
  const virtual = useVirtualizer({
    count: lines.length,
    getScrollElement: () => box.current,
    estimateSize: () => HEIGHT,
    getItemKey: (index) => lines[index]?.at ?? index,
    overscan: 20,
  });
  useImperativeHandle(ref, () => ({ top: () => lines[virtual.range?.startIndex ?? 0]?.at ?? 0 }));
  useEffect(() => virtual.measure(), [wrap, virtual]);

  const last = lines.length - 1;
  useLayoutEffect(() => {
    if (atEnd && last >= 0) virtual.scrollToIndex(last, { align: "end" });
  }, [atEnd, last, wrap, virtual]);

  // Lines put in front push the others down: what was in view stays there.
  const head = useRef(lines[0]?.at);
  useLayoutEffect(() => {
    const was = head.current;
    head.current = lines[0]?.at;
    if (atEnd || chosen !== null || was === undefined || lines[0] === undefined || was <= lines[0].at) return;
    const added = indexAt(lines, was);
    if (added > 0 && box.current) box.current.scrollTop += added * HEIGHT;
  }, [lines, atEnd, chosen]);

  const index = chosen === null ? -1 : indexAt(lines, chosen);
  useLayoutEffect(() => {
    if (index >= 0) virtual.scrollToIndex(index, { align: "center" });
  }, [index, chosen, virtual]);

  // What does not fill the box cannot be scrolled, and nothing before it would ever be asked for.
  useEffect(() => {
    const element = box.current;
    if (fill && element && element.scrollHeight - element.clientHeight < NEAR) onTop();
  });

  const scrolled = (element: HTMLDivElement) => {
    const back = element.scrollTop < before.current - 1;
    const on = element.scrollTop > before.current + 1;
    before.current = element.scrollTop;
    const left = element.scrollHeight - element.scrollTop - element.clientHeight;
    if (back && left > 2 * HEIGHT) onLeave();
    if (on && left < NEAR) onBottom();
    if (back && element.scrollTop < NEAR) onTop();
  };

  const longest = useMemo(() => lines.reduce((most, line) => Math.max(most, line.text.length), 0), [lines]);
  const numbers = useMemo(() => (first === null ? [] : numbersOf(lines, first)), [lines, first]);
  const digits = first === null ? 1 : String(first + lines.length).length;
  const style = {
    height: virtual.getTotalSize(),
    minWidth: wrap ? undefined : `calc(${longest + digits}ch + 64px)`,
    "--digits": `${digits}ch`,
  } as CSSProperties;
  return (
    // eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- what scrolls must be reached by keyboard
    <div ref={box} className={styles.lines} style={{ "--total": `${virtual.getTotalSize() + 18}px` } as CSSProperties} tabIndex={0} role="region" aria-label={label} onScroll={(event) => scrolled(event.currentTarget)}>
      <div className={join(styles.all, wrap && styles.wrapped)} style={style}>
        {virtual.getVirtualItems().map((item) => {
          const line = lines[item.index];
          return line ? (
            <div
              key={item.key}
              ref={wrap ? virtual.measureElement : undefined}
              data-index={item.index}
              className={join(styles.line, line.level && styles[line.level], line.at === chosen && styles.chosen)}
              style={{ transform: `translateY(${item.start}px)` }}
            >
              <button type="button" tabIndex={-1} className={styles.number} title="Link to this line" onClick={() => onChoose(line.at)}>
                {line.continued ? "⋯" : (numbers[item.index] ?? "·")}
              </button>
              <LevelSign level={line.level} />
              <code className={styles.text}>
                <Marked text={line.text} words={words} />
              </code>
            </div>
          ) : null;
        })}
      </div>
    </div>
  );
}

function LevelSign({ level }: { readonly level: Line["level"] }) {
  return (
    <span className={styles.level}>
      {level && <span className="visually-hidden">{level}: </span>}
      <span aria-hidden>{level === "error" ? "✕" : level === "warning" ? "!" : ""}</span>
    </span>
  );
}

function Marked({ text, words }: { readonly text: string; readonly words: string }) {
  return marked(text, words).map((part, place) => (place % 2 ? <mark key={place}>{part}</mark> : part));
}
