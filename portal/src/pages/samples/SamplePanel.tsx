import { Link } from "@tanstack/react-router";
import { useState } from "react";

import type { AnswerSource, SampleDetail } from "../../api/schema";
import { Button, Diff, OutcomeChip, Toggle } from "../../ui";
import { count, counted } from "../../ui/format";
import { Accounts } from "./Accounts";
import { Facts } from "./Facts";
import { Json } from "./Json";
import { Part } from "./Part";
import { questionOf } from "./question";
import styles from "./SamplePanel.module.css";
import { Turns } from "./Turns";

interface Props {
  readonly experiment: string;
  readonly task: string;
  readonly detail: SampleDetail;
  readonly withDiff: boolean;
  readonly onDiff: (on: boolean) => void;
  readonly withRaw: boolean;
  readonly onRaw: (on: boolean) => void;
}

/** Characters above which a prompt stays closed until it is opened: the answer below it comes first. */
const LONG_QUESTION = 600;

/** All that is known of a sample beside its images: what was right, what was answered, and what that was worth. */
export function SamplePanel({ experiment, task, detail, withDiff, onDiff, withRaw, onRaw }: Props) {
  const { row, references, answer, prediction, diff, prompt } = detail;
  const asked = questionOf(detail);
  const bare = row.outcome !== "ok";
  const readAs = prediction !== null && prediction !== answer;
  return (
    <div className={styles["panel"]}>
      {bare && (
        <p className={styles["outcome"]}>
          <OutcomeChip outcome={row.outcome} />
          <span>{detail.error ?? row.reason ?? ""}</span>
        </p>
      )}
      {detail.taken_from && <Taken from={detail.taken_from} sample={row.sample} />}
      <Part title={asked === prompt ? "Prompt" : "Question"} copy={asked} folded={asked.length > LONG_QUESTION}>
        <Told text={asked} />
      </Part>
      <Part title={references.length > 1 ? `References, ${references.length}` : "Reference"} copy={references.join("\n")}>
        {references.length === 0 && <p className={styles["none"]}>none</p>}
        <ul className={styles["references"]}>
          {references.map((one, at) => (
            <li key={at} className={styles["text"]}>
              {one}
            </li>
          ))}
        </ul>
      </Part>
      <Part title={readAs ? "Prediction" : "Answer"} copy={prediction ?? answer ?? ""} actions={<Toggle label="Diff" checked={withDiff} onChange={onDiff} />}>
        {withDiff && diff.length > 0 ? (
          <div className={styles["text"]} data-testid="diff">
            <Diff words={diff} />
            <NotCompared left={detail.not_compared} onWhole={() => onDiff(false)} />
          </div>
        ) : (
          <Told text={readAs ? prediction : answer} />
        )}
        {row.reason && !bare && <p className={styles["reason"]}>unreadable: {row.reason}</p>}
        {row.mistake && <p className={styles["reason"]}>mistake: {row.mistake}</p>}
      </Part>
      {readAs && (
        <Part title="Answer text" copy={answer ?? ""}>
          <Told text={answer} />
        </Part>
      )}
      {detail.reasoning && (
        <Part title="Reasoning" copy={detail.reasoning} folded>
          <Told text={detail.reasoning} />
        </Part>
      )}
      {detail.agent && <Turns experiment={experiment} task={task} place={row.place} />}
      <Accounts accounts={detail.accounts} />
      {asked !== prompt && (
        <Part title="Prompt" copy={prompt ?? ""} folded={(prompt ?? "").length > LONG_QUESTION}>
          <Told text={prompt} />
        </Part>
      )}
      {detail.system && (
        <Part title="System prompt" copy={detail.system} folded>
          <Told text={detail.system} />
        </Part>
      )}
      <Facts detail={detail} />
      <Part title="Raw response" open={withRaw} onOpen={onRaw} copy={() => JSON.stringify(detail.raw, null, 2)} folded>
        <Json value={detail.raw} />
      </Part>
    </div>
  );
}

/** Who gave an answer that this experiment did not ask for. */
function Taken({ from, sample }: { readonly from: AnswerSource; readonly sample: string }) {
  const where = from.here ? (
    <Link to="/e/$experiment/t/$task/samples" params={{ experiment: from.experiment, task: from.run_task }}>
      {from.experiment}
    </Link>
  ) : (
    `${from.experiment}, which is gone`
  );
  return (
    <p className={styles["none"]} data-testid="taken">
      Not asked here: the answer is of {where}
      {from.sample === sample ? "" : `, sample ${from.sample}`}. Its times count in no figure of speed here.
    </p>
  );
}

/** What of long texts the diff leaves out, and the way to all of it. */
function NotCompared({ left, onWhole }: { readonly left: readonly number[]; readonly onWhole: () => void }) {
  const [reference = 0, answer = 0] = left;
  if (reference + answer === 0) return null;
  const parts = [reference > 0 && `${count(reference)} of the reference`, answer > 0 && `${count(answer)} of the answer`].filter(Boolean);
  return (
    <p className={styles["none"]}>
      {counted(reference + answer, "more character")} at the end {reference + answer === 1 ? "is" : "are"} not compared: {parts.join(", ")}.{" "}
      <Button small onClick={onWhole}>
        Whole answer
      </Button>
    </p>
  );
}

/** Text of others, as it is. */
function Told({ text }: { readonly text: string | null | undefined }) {
  if (text === null || text === undefined) return <p className={styles["none"]}>none</p>;
  if (text === "") return <p className={styles["none"]}>empty</p>;
  return <LongText text={text} />;
}

/** Characters shown of a long text at first. */
const SOME = 3000;

function LongText({ text }: { readonly text: string }) {
  const [whole, setWhole] = useState(false);
  const long = text.length > SOME && !whole;
  return (
    <>
      <p className={styles["text"]}>
        {long ? text.slice(0, SOME) : text}
        {long && " …"}
      </p>
      {long && (
        <Button small onClick={() => setWhole(true)}>
          All {counted(text.length, "character")}
        </Button>
      )}
    </>
  );
}
