import type { Word } from "../api/schema";
import styles from "./Diff.module.css";

interface Props {
  readonly words: readonly Word[];
  /** What the answer is compared with, for those who do not see the marks. */
  readonly from?: string;
}

/** Words that a text and an answer share; words of the text alone are struck, words of the answer alone underlined. */
export function Diff({ words, from = "the reference" }: Props) {
  if (words.length === 0) return <span className={styles.none}>nothing to compare</span>;
  // The answer has no word: to strike out all of the reference would look like one.
  if (words.every(({ kind }) => kind === "lost")) return <span className={styles.none}>empty</span>;
  return (
    <p className={styles.diff}>
      {words.map(({ kind, text }, place) => (
        <DiffWord key={place} kind={kind} text={text} from={from} />
      ))}
    </p>
  );
}

function DiffWord({ kind, text, from }: Word & { readonly from: string }) {
  if (kind === "same") return <span>{text} </span>;
  const Tag = kind === "lost" ? "del" : "ins";
  return (
    <>
      <Tag className={kind === "lost" ? styles.lost : styles.added}>
        <span className="visually-hidden">{kind === "lost" ? `[only in ${from}: ` : "[only in the answer: "}</span>
        {text}
        <span className="visually-hidden">]</span>
      </Tag>{" "}
    </>
  );
}
