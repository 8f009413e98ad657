import { useDeferredValue, useEffect, useMemo, useRef, useState } from "react";
import { isBundle } from "../api/bundle";
import { Button, Empty, FaultBox, Icon, Skeleton, TextInput, Toggle, useHotkeys } from "../ui";
import { bytes, counted } from "../ui/format";
import { allErrors, beginOf, endOf, errorsOf, found, linesOf, next } from "./log-buffer";
import { LogLines, type LogLinesHandle } from "./LogLines";
import styles from "./log.module.css";
import { useLog } from "./use-log";

/** The viewer's settings in the URL. */
export interface LogSearch {
  readonly find: string;
  /** Whether to show only lines with these words, of the whole log. */
  readonly only: boolean;
  readonly wrap: boolean;
  /** Offset of the selected line. */
  readonly at: number | null;
}

interface Props {
  readonly experiment: string;
  readonly log: string;
  readonly title: string;
  /** Whether it may still grow. */
  readonly grows: boolean;
  /** Whether it is opened at its first error. */
  readonly atError?: boolean;
  readonly search: LogSearch;
  readonly onSearch: (change: Partial<LogSearch>) => void;
}

/** A log: followed, searched, by virtual lines; errors a key away. */
export function LogViewer({ experiment, log, title, grows, atError = false, search, onSearch }: Props) {
  const { find, wrap, at } = search;
  const [wished, setFollow] = useState(true);
  // A log that does not grow any more is shown from its end as well: that is where the news is.
  const atEnd = wished && at === null;
  const follow = atEnd && grows;
  const handle = useRef<LogLinesHandle>(null);
  const words = useDeferredValue(find);
  // A bundle has a log's end, and from there back: no file answers for a place in it, or for words.
  const within = isBundle();
  const only = search.only && !within;
  const read = useLog(experiment, log, { grep: only ? words : "", at: within ? null : at, follow });
  const { buffer } = read;
  const lines = useMemo(() => linesOf(buffer), [buffer]);
  const finds = useMemo(() => found(lines, words), [lines, words]);
  const errors = useMemo(() => allErrors(buffer, errorsOf(lines), only || within ? [] : read.errors), [buffer, lines, only, within, read.errors]);

  const goTo = (to: number | null) => {
    if (to === null) return;
    onSearch({ at: to });
    if (to < beginOf(buffer) || to >= endOf(buffer)) void read.go(to);
  };
  const step = (offsets: readonly number[], by: 1 | -1) => goTo(next(offsets, at ?? (handle.current?.top() ?? 0) - 1, by));
  // Once: who goes on from there is not brought back.
  const opened = useRef(!atError || at !== null || find !== "");
  const first = errors[0];
  useEffect(() => {
    if (opened.current || first === undefined) return;
    opened.current = true;
    goTo(first);
    // eslint-disable-next-line react-hooks/exhaustive-deps
  }, [first]);
  const followOn = (on: boolean) => {
    setFollow(on);
    if (!on) return;
    onSearch({ at: null });
    if (read.hasLater) void read.go(null);
  };
  useHotkeys(
    {
      n: ["next match", () => step(finds, 1)],
      "shift+n": ["previous match", () => step(finds, -1)],
      e: ["next error", () => step(errors, 1)],
      "shift+e": ["previous error", () => step(errors, -1)],
      f: ["follow the log, or stop", () => followOn(!atEnd)],
      w: ["wrap lines", () => onSearch({ wrap: !wrap })],
    },
    "Log",
  );

  const place = at === null ? 0 : finds.indexOf(at) + 1;
  const told = !words ? "" : finds.length > 0 ? `${place ? `${place} of ` : ""}${counted(finds.length, "line")}` : "not found here";
  return (
    <section className={styles.viewer} aria-label={`Log of ${title}`}>
      <div className={styles.tools}>
        <div className={styles.group}>
          <TextInput label="Find in the log" search value={find} placeholder="Find in the log" onChange={(value) => onSearch({ find: value, at: null })} delay={200} />
          <Button kind="quiet" small onClick={() => step(finds, -1)} disabled={finds.length === 0} aria-label="Previous match">
            <Icon name="up" />
          </Button>
          <Button kind="quiet" small onClick={() => step(finds, 1)} disabled={finds.length === 0} aria-label="Next match">
            <Icon name="down" />
          </Button>
          <span className={styles.hint} role="status">
            {told}
          </span>
        </div>
        <div className={styles.group}>
          <Button small onClick={() => step(errors, -1)} disabled={errors.length === 0} aria-label="Previous error">
            <Icon name="up" /> Error
          </Button>
          <Button small onClick={() => step(errors, 1)} disabled={errors.length === 0} aria-label="Next error">
            <Icon name="down" /> Error
          </Button>
          {!within && <Toggle label="Only matches" checked={only} onChange={(on) => onSearch({ only: on, at: null })} />}
          <Toggle label="Wrap" checked={wrap} onChange={(on) => onSearch({ wrap: on })} />
          {grows && <Toggle label="Follow" checked={follow} onChange={followOn} />}
        </div>
      </div>
      {read.fault && !read.fault.unreachable && <FaultBox fault={read.fault} retry={() => void read.go(null)} />}
      {read.loading && <Skeleton lines={12} />}
      {!read.loading && !read.fault && lines.length === 0 && <Empty title={only && words ? `No line contains “${words}”` : "The log is empty"} />}
      {lines.length > 0 && (
        <LogLines
          ref={handle}
          lines={lines}
          first={buffer.first}
          words={words}
          wrap={wrap}
          chosen={at}
          label={`Lines of ${title}`}
          atEnd={atEnd}
          fill={!only}
          onChoose={(offset) => onSearch({ at: offset })}
          onLeave={() => setFollow(false)}
          onTop={() => void (read.hasEarlier && read.earlier())}
          onBottom={() => void (read.hasLater && read.later())}
        />
      )}
      <p className={styles.foot}>
        <span>{bytes(buffer.size)}</span>
        <span>{counted(lines.length, "line")} here</span>
        <span>{errors.length > 0 ? counted(errors.length, "error") : "no errors seen"}</span>
        {grows && <span>{follow ? "following" : "paused: scroll position is kept"}</span>}
        {grows && !follow && (
          <Button small kind="quiet" onClick={() => followOn(true)}>
            <Icon name="down" /> To the end, and follow
          </Button>
        )}
      </p>
    </section>
  );
}
