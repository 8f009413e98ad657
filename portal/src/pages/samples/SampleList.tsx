import type { KeyboardEvent, MouseEvent } from "react";

import type { SampleRow } from "../../api/schema";
import { count } from "../../ui/format";
import styles from "./SampleList.module.css";
import { SampleOption } from "./SampleOption";
import type { Samples } from "./useSamples";

/** Pixels of a row. */
export const ROW = 60;

interface Props {
  readonly samples: Samples;
  /** Number of the one shown, in the list. */
  readonly current: number | undefined;
  /** Whether more of a metric is better. */
  readonly better: ReadonlyMap<string, boolean>;
  readonly thumbOf: (row: SampleRow) => string | null;
  readonly onOpen: (number: number) => void;
}

/** The samples that pass the filter, however many; only those in view are there. */
export function SampleList({ samples, current, better, thumbOf, onOpen }: Props) {
  const { first } = samples;
  const { attach, height, range, resting, yOf } = samples.window;
  const total = first?.total ?? 0;
  const [begin, end] = range;
  const metric = first?.metrics[0];
  const numbers = Array.from({ length: Math.max(0, end - begin) }, (_, at) => begin + at);
  const keys = (event: KeyboardEvent) => {
    const to = target(event.key, current ?? -1, total);
    if (to === undefined) return;
    event.preventDefault();
    onOpen(to);
  };
  const clicked = (event: MouseEvent) => {
    const found = (event.target as Element).closest<HTMLElement>("[data-number]")?.dataset["number"];
    if (found !== undefined) onOpen(Number(found));
  };
  const inView = current !== undefined && current >= begin && current < end;
  return (
    <div
      ref={attach}
      className={styles["list"]}
      role="listbox"
      tabIndex={0}
      aria-label={`Samples, ${count(total)}`}
      aria-activedescendant={inView ? idOf(current) : undefined}
      onKeyDown={keys}
      onClick={clicked}
      data-testid="samples"
    >
      <div className={styles["all"]} style={{ height }} role="presentation">
        {numbers.map((number) => (
          <SampleOption
            key={number}
            id={idOf(number)}
            number={number}
            total={total}
            row={samples.at(number)}
            metric={metric}
            moreIsBetter={metric === undefined ? true : (better.get(metric) ?? true)}
            chosen={number === current}
            quick={!resting}
            y={yOf(number)}
            thumbOf={thumbOf}
          />
        ))}
      </div>
    </div>
  );
}

function idOf(number: number): string {
  return `sample-${number}`;
}

/** Where a key leads from the current row; undefined: it is none of the list's. */
function target(key: string, current: number, total: number): number | undefined {
  const steps: Readonly<Record<string, number>> = { ArrowDown: 1, ArrowUp: -1, PageDown: 10, PageUp: -10 };
  const last = total - 1;
  if (last < 0) return undefined;
  if (key === "Home") return 0;
  if (key === "End") return last;
  const step = steps[key];
  return step === undefined ? undefined : Math.min(Math.max(current + step, 0), last);
}
