import { useEffect, useRef } from "react";

import type { Box, FlipRow, SampleDetail } from "../../api/schema";
import { Button, CopyButton, FaultBox, Select, Skeleton, useHotkeys } from "../../ui";
import { count } from "../../ui/format";
import { Accounts } from "../samples/Accounts";
import { Part } from "../samples/Part";
import { questionOf } from "../samples/question";
import { Viewer } from "../samples/Viewer";
import { AnswerText } from "./AnswerText";
import styles from "./FlipView.module.css";
import { score, signedChange } from "./flips";
import type { FlipPlace } from "./search";
import { type Side, useFlip } from "./useFlip";

interface Props {
  readonly row: FlipRow;
  /** Rows before and after it, as far as they are known. */
  readonly neighbours: readonly [FlipRow | undefined, FlipRow | undefined];
  /** Number of the row in the list, from 0, and how many the list has. */
  readonly at: number;
  readonly total: number;
  /** Baseline and candidate. */
  readonly sides: readonly [Side, Side];
  readonly metric: string;
  readonly view: Omit<FlipPlace, "flip">;
  readonly onView: (change: Partial<FlipPlace>) => void;
}

const NAMES = ["Baseline", "Candidate"] as const;

/** One sample of a comparison whole: its page, the question, the references, both answers, and why they got their scores. */
export function FlipView({ row, neighbours, at, total, sides, metric, view, onView }: Props) {
  const { details, fault, again } = useFlip(sides, row, neighbours);
  const detail = details[0] ?? details[1];
  const place = useRef<HTMLElement>(null);
  const shown = detail !== undefined;
  // Once with its final height: before, the page may be too short to scroll there.
  useEffect(() => {
    place.current?.scrollIntoView({ block: "start" }); // no cleanup: some browsers return a promise
  }, [shown]);
  const step = (by: 1 | -1) => {
    const to = at + by;
    if (to >= 0 && to < total) onView({ flip: to, image: 0 });
  };
  useHotkeys(
    {
      j: ["next sample", () => step(1)],
      k: ["previous sample", () => step(-1)],
      d: ["compare with the reference, or the answers with each other", () => onView({ against: view.against === "reference" ? "answer" : "reference" })],
      Escape: ["back to the list", () => onView({ flip: null, image: 0 })],
    },
    "Samples of the comparison",
  );
  return (
    <article ref={place} className={styles["flip"]} aria-label={`Sample ${row.sample}`} data-testid="flip">
      <header className={styles["head"]}>
        <Button kind="quiet" small icon="left" onClick={() => onView({ flip: null, image: 0 })}>
          List
        </Button>
        <h3 className={styles["name"]}>{row.sample}</h3>
        <span className={styles["score"]} title={metric}>
          {score(row.scores[0])} → {score(row.scores[1])} {signedChange(row.scores)}
        </span>
        <span className={styles["steps"]}>
          <Button kind="quiet" small icon="left" aria-label="Previous sample" onClick={() => step(-1)} disabled={at === 0} />
          <span className={styles["place"]}>
            {count(at + 1)} of {count(total)}
          </span>
          <Button kind="quiet" small icon="right" aria-label="Next sample" onClick={() => step(1)} disabled={at + 1 >= total} />
        </span>
        <CopyButton text={location.href} label="Link" />
      </header>
      <FaultBox fault={fault} retry={again} />
      {!detail && !fault && <Skeleton lines={8} />}
      {detail && (
        <div className={styles["body"]}>
          <section className={styles["image"]} aria-label="Images">
            <Viewer
              sample={row.sample}
              images={detail.images}
              boxes={boxesOf(details)}
              missing={detail.missing_images}
              shown={view.image}
              onShow={(image) => onView({ image })}
              withBoxes={view.boxes}
              onBoxes={(boxes) => onView({ boxes })}
            />
          </section>
          <div className={styles["panel"]}>
            <Part title="Question" copy={questionOf(detail)}>
              <p className={styles["text"]}>{questionOf(detail) || "none"}</p>
            </Part>
            <Part title={detail.references.length > 1 ? `References, ${detail.references.length}` : "Reference"} copy={detail.references.join("\n")}>
              <ul className={styles["references"]}>
                {detail.references.map((one, place) => (
                  <li key={place} className={styles["text"]}>
                    {one}
                  </li>
                ))}
              </ul>
            </Part>
            <div className={styles["choice"]}>
              <Select
                label="Words"
                value={view.against}
                options={[
                  { value: "reference", label: "compare with the reference" },
                  { value: "answer", label: "compare with the baseline" },
                ]}
                onChange={(against) => onView({ against: against === "answer" ? "answer" : "reference" })}
              />
            </div>
            <div className={styles["sides"]}>
              {NAMES.map((name, side) => (
                <section key={name} className={styles["side"]} aria-label={name}>
                  <h4>{name}</h4>
                  <div>
                    <WholeAnswer detail={details[side]} base={view.against === "reference" ? null : side === 1 ? said(details[0]) : ""} note={row.notes[side] ?? ""} />
                  </div>
                  <p className={styles["soft"]}>{details[side]?.row.mistake && `mistake: ${details[side].row.mistake}`}</p>
                  <Why title={`Scores of the ${name.toLowerCase()}`} detail={details[side]} metric={metric} />
                </section>
              ))}
            </div>
          </div>
        </div>
      )}
    </article>
  );
}

/** The value that was read from an answer, or the answer where none was. */
function said(detail: SampleDetail | undefined): string {
  return detail?.prediction ?? detail?.answer ?? "";
}

interface WholeAnswerProps {
  readonly detail: SampleDetail | undefined;
  /** The text that its words are compared with; null: the nearest reference; empty: none. */
  readonly base: string | null;
  /** Why there is no answer, or why it cannot be read. */
  readonly note: string;
}

/** An answer as it was given, not shortened. */
function WholeAnswer({ detail, base, note }: WholeAnswerProps) {
  if (!detail) return <Skeleton lines={2} />;
  const answer = detail.answer === null ? null : said(detail);
  if (base !== null) return <AnswerText answer={answer} note={note} base={base} from="the baseline's answer" />;
  if (detail.not_compared.every((left) => left === 0)) return <AnswerText answer={answer} note={note} words={detail.diff} />;
  return (
    <>
      <AnswerText answer={answer} note={note} />
      <p className={styles["soft"]}>too long to be compared by words</p>
    </>
  );
}

/** Boxes of the references, and of both answers with the run they are from. */
function boxesOf(details: readonly (SampleDetail | undefined)[]): Box[] {
  const right = details.find((detail) => detail !== undefined)?.boxes.filter((box) => box.of === "reference") ?? [];
  const answered = details.flatMap((detail, side) => (detail?.boxes ?? []).filter((box) => box.of === "answer").map((box) => ({ ...box, label: `${box.label} ${side === 0 ? "A" : "B"}`.trim() })));
  return [...right, ...answered];
}

/** Why an answer got its score: the metric that is compared comes first. */
function Why({ title, detail, metric }: { readonly title: string; readonly detail: SampleDetail | undefined; readonly metric: string }) {
  if (!detail) return <Skeleton lines={2} />;
  const accounts = [...detail.accounts].sort((one, other) => Number(other.metric === metric) - Number(one.metric === metric));
  return <Accounts title={title} accounts={accounts} />;
}
