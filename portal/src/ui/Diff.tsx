import type { Word } from "../api/schema";
import styles from "./Diff.module.css";

/** Words that the reference and the answer share, lost ones struck, added ones underlined. */
export function Diff({ words }: { readonly words: readonly Word[] }) {
  if (words.length === 0) return <span className={styles.none}>nothing to compare</span>;
  // The answer has no word: to strike out all of the reference would look like one.
  if (words.every(({ kind }) => kind === "lost")) return <span className={styles.none}>empty</span>;
  return (
    <p className={styles.diff}>
      {words.map(({ kind, text }, place) => (
        <DiffWord key={place} kind={kind} text={text} />
      ))}
    </p>
  );
}

function DiffWord({ kind, text }: Word) {
  if (kind === "same") return <span>{text} </span>;
  const Tag = kind === "lost" ? "del" : "ins";
  return (
    <>
      <Tag className={kind === "lost" ? styles.lost : styles.added}>
        <span className="visually-hidden">{kind === "lost" ? "[only in the reference: " : "[only in the answer: "}</span>
        {text}
        <span className="visually-hidden">]</span>
      </Tag>{" "}
    </>
  );
}
