import { isBundle } from "../../api/bundle";
import type { SampleDetail } from "../../api/schema";
import { Button, CopyButton } from "../../ui";
import { count, counted, duration } from "../../ui/format";
import styles from "./SampleHead.module.css";

interface Props {
  readonly detail: SampleDetail;
  readonly number: number | undefined;
  readonly total: number;
  readonly link: string;
  readonly onStep: (by: 1 | -1) => void;
  readonly onFlag: () => void;
  readonly onNote: () => void;
  readonly onBack: () => void;
}

/** Which sample this is, and what can be done with it. */
export function SampleHead({ detail, number, total, link, onStep, onFlag, onNote, onBack }: Props) {
  const { row } = detail;
  const told = [
    row.latency === null ? "" : duration(row.latency),
    typeof row.output_tokens !== "number" ? "" : counted(row.output_tokens, "token"),
  ].filter(Boolean);
  return (
    <header className={styles["head"]}>
      <div className={styles["line"]}>
        <span className={styles["back"]}>
          <Button kind="quiet" small icon="left" onClick={onBack}>
            List
          </Button>
        </span>
        <h2 className={styles["name"]} title={row.sample} data-testid="sample">
          {row.sample}
        </h2>
        {!isBundle() && (
          <>
            <Button kind="quiet" small icon="flag" aria-pressed={row.flagged} aria-label={row.flagged ? "Remove the flag" : "Flag"} onClick={onFlag} />
            <Button kind="quiet" small icon="note" aria-label={detail.note ? "Change the note" : "Note"} aria-pressed={Boolean(detail.note)} onClick={onNote} />
          </>
        )}
        <CopyButton text={link} label="Link" />
      </div>
      <div className={styles["line"]}>
        <span className={styles["told"]}>{told.join(" · ")}</span>
        <Button kind="quiet" small icon="left" aria-label="Previous sample" onClick={() => onStep(-1)} disabled={detail.previous === null && number !== undefined} />
        <span className={styles["place"]}>
          {number === undefined ? "not in the filter" : `${count(number + 1)} of ${count(total)}`}
        </span>
        <Button kind="quiet" small icon="right" aria-label="Next sample" onClick={() => onStep(1)} disabled={detail.following === null && number !== undefined} />
      </div>
      {detail.note && <p className={styles["note"]}>{detail.note}</p>}
    </header>
  );
}
