import { Link } from "@tanstack/react-router";
import { memo } from "react";
import type { MatrixCell } from "../../api/schema";
import { Icon, StateChip } from "../../ui";
import { DEFINITIONS, samplesDone } from "../../ui/counts";
import { count, number, percent, progress } from "../../ui/format";
import { lookOf } from "../../ui/states";
import styles from "./matrix.module.css";

interface Props {
  readonly experiment: string;
  readonly cell: MatrixCell;
  /** How strongly it is coloured; null: not at all. */
  readonly shade: number | null;
  /** Whether the keyboard is here. */
  readonly here: boolean;
  /** Model and dataset. */
  readonly about: string;
  readonly onFocus: () => void;
}

/** A run task in the matrix: its state while it runs, its score with interval after. */
export const MatrixCellLink = memo(
  function MatrixCellLink({ experiment, cell, shade, here, about, onFocus }: Props) {
    const { score } = cell;
    const scored = typeof score?.value === "number";
    return (
      <Link
        to="/e/$experiment/t/$task"
        params={{ experiment, task: cell.run_task }}
        className={styles.link}
        data-shade={scored ? (shade ?? undefined) : undefined}
        data-tone={scored ? undefined : lookOf(cell.state).tone}
        tabIndex={here ? 0 : -1}
        data-here={here}
        title={`${about}\n${told(cell)}`}
        onFocus={onFocus}
        preload={false}
      >
        {/* The name begins with the visible text and continues from it. */}
        <span className="visually-hidden">
          {about}
          {scored && `: ${score.metric}`}{" "}
        </span>
        {scored ? <Scored cell={cell} /> : <Going cell={cell} />}
      </Link>
    );
  },
  (one, other) => one.cell === other.cell && one.shade === other.shade && one.here === other.here && one.about === other.about && one.experiment === other.experiment,
);

function Scored({ cell }: { readonly cell: MatrixCell }) {
  const { score } = cell;
  const known = typeof score?.low === "number" && typeof score.high === "number";
  const partly = typeof cell.coverage === "number" && cell.coverage < 1;
  return (
    <>
      <span className={styles.value}>
        {number(score?.value)}
        {cell.leads && <Icon name="star" size={12} />}
        {cell.state !== "done" && <span className={styles.short}><StateChip state={cell.state} quiet /></span>}
        {partly && <span className={styles.short} title={`Coverage: ${DEFINITIONS.coverage}`}>at {percent(cell.coverage, 1)}</span>}
      </span>
      <span className={styles.interval}>{known ? `${number(score.low)} – ${number(score.high)}` : `n = ${count(score?.n)}`}</span>
    </>
  );
}

function Going({ cell }: { readonly cell: MatrixCell }) {
  const share = cell.samples > 0 ? cell.answered / cell.samples : 0;
  const moves = cell.answered > 0 && cell.state !== "done";
  return (
    <>
      <StateChip state={cell.state} quiet />
      {moves && (
        <span className={styles.going}>
          <span className={styles.track}>
            <span className={styles.done} style={{ transform: `scaleX(${share})` }} />
          </span>
          <span className={styles.share}>{progress(share)}</span>
        </span>
      )}
    </>
  );
}

/** A cell in words. */
function told(cell: MatrixCell): string {
  const { score } = cell;
  const parts = [lookOf(cell.state).word, samplesDone(cell)];
  if (typeof cell.coverage === "number") parts.push(`coverage ${percent(cell.coverage, 1)}`);
  if (score && score.value !== null) {
    const interval = typeof score.low === "number" && typeof score.high === "number" ? `, 95 % interval ${number(score.low)} to ${number(score.high)}` : "";
    parts.unshift(`${score.metric} ${number(score.value)}${interval}, n = ${count(score.n)}${cell.leads ? ", best value of its dataset" : ""}`);
  }
  if (cell.reason) parts.push(cell.reason);
  return parts.join("; ");
}
