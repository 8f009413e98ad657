import { memo, useState } from "react";

import type { SampleRow } from "../../api/schema";
import { Icon, OutcomeChip } from "../../ui";
import { join } from "../../ui/join";
import { Picture } from "./Picture";
import { ScoreChip } from "./ScoreChip";
import styles from "./SampleList.module.css";

interface Props {
  readonly id: string;
  readonly number: number;
  readonly total: number;
  /** Undefined: not here yet. */
  readonly row: SampleRow | undefined;
  readonly metric: string | undefined;
  readonly moreIsBetter: boolean;
  readonly chosen: boolean;
  /** The list is being scrolled: no new images now. */
  readonly quick: boolean;
  readonly y: number;
  readonly thumbOf: (row: SampleRow) => string | null;
}

/** A sample in the list: picture, id, score and how its answer begins. */
export const SampleOption = memo(function SampleOption(props: Props) {
  const { row, chosen, y, metric } = props;
  return (
    <div
      id={props.id}
      role="option"
      aria-selected={chosen}
      aria-posinset={props.number + 1}
      aria-setsize={props.total}
      aria-busy={row === undefined}
      className={join(styles["option"], chosen && styles["chosen"])}
      style={{ transform: `translateY(${y}px)` }}
      data-number={props.number}
    >
      {row === undefined ? (
        <span className={styles["waiting"]}>
          <span className="visually-hidden">loading</span>
        </span>
      ) : (
        <>
          <Thumb key={row.place} src={props.thumbOf(row)} quick={props.quick} />
          <span className={styles["words"]}>
            <span className={styles["head"]}>
              <span className={styles["name"]}>{row.sample}</span>
              {row.flagged && <Icon name="flag" />}
              {row.outcome === "ok" || row.outcome === "truncated" ? (
                metric !== undefined && <ScoreChip value={row.scores[metric] ?? null} moreIsBetter={props.moreIsBetter} />
              ) : (
                <OutcomeChip outcome={row.outcome} quiet />
              )}
            </span>
            <span className={styles["answer"]}>{row.answer ?? row.reason ?? "no answer"}</span>
          </span>
        </>
      )}
    </div>
  );
});

/** The first image, small; asked for once the list rests, and not missed where there is none. */
function Thumb({ src, quick }: { readonly src: string | null; readonly quick: boolean }) {
  const [state, setState] = useState<"waiting" | "asked" | "none">("waiting");
  if (state === "waiting" && !quick) setState("asked");
  return (
    <span className={styles["thumb"]}>
      {state === "asked" && src !== null && <Picture place={src} alt="" decoding="async" fetchPriority="low" draggable={false} onError={() => setState("none")} />}
    </span>
  );
}
