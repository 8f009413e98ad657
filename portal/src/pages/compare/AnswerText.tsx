import type { Word } from "../../api/schema";
import { Diff } from "../../ui";
import styles from "./Flips.module.css";
import { wordDiff } from "./words";

interface Props {
  readonly answer: string | null;
  /** Why there is no answer, or why it cannot be read. */
  readonly note: string;
  /** The text that its words are compared with; empty: none. */
  readonly base?: string;
  /** That text's name. */
  readonly from?: string;
  /** The comparison, where it is known. */
  readonly words?: readonly Word[];
}

/** An answer of a comparison, its words compared with another text. */
export function AnswerText({ answer, note, base = "", words, from = "the reference" }: Props) {
  const compared = words ?? (base === "" || answer === null ? [] : wordDiff(base, answer));
  return (
    <>
      {answer === null ? null : answer.trim() === "" ? <p className={styles["soft"]}>empty</p> : compared.length === 0 ? <p className={styles["text"]}>{answer}</p> : <Diff words={compared} from={from} />}
      {note && <p className={styles["soft"]}>{answer === null ? `no answer: ${note}` : `unreadable: ${note}`}</p>}
    </>
  );
}
