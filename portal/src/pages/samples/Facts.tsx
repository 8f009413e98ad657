import type { ReactNode } from "react";

import type { SampleDetail } from "../../api/schema";
import { count, duration } from "../../ui/format";
import styles from "./Facts.module.css";
import { Part } from "./Part";

/** Words for what the API calls times and tokens. */
const WORDS: Readonly<Record<string, string>> = {
  ttft: "to the first token",
  tpot: "a token after it",
  e2e: "to the last token",
  ttft_due: "due to first token",
  e2e_due: "due to last token",
  queue: "waited",
  prompt_tokens: "prompt tokens",
  completion_tokens: "answer tokens",
  output_tokens: "answer tokens",
  input_tokens: "prompt tokens",
};

/** Times, tokens, and what the dataset says of a sample. */
export function Facts({ detail }: { readonly detail: SampleDetail }) {
  const times = Object.entries(detail.times).filter(([, value]) => value !== null);
  const usage = Object.entries(detail.usage).filter(([, value]) => value !== null);
  return (
    <>
      {times.length + usage.length > 0 && (
        <Part title={detail.taken_from ? "Time and tokens, of the earlier experiment" : "Time and tokens"}>
          <List>
            {times.map(([name, value]) => (
              <Pair key={name} name={WORDS[name] ?? name} value={duration(value)} />
            ))}
            {usage.map(([name, value]) => (
              <Pair key={name} name={WORDS[name] ?? name} value={count(value)} />
            ))}
          </List>
        </Part>
      )}
      <Table title="Fields" values={detail.fields} />
      <Table title="Metadata" values={{ document: detail.row.document, place: detail.row.place, ...detail.metadata }} />
    </>
  );
}

function Table({ title, values }: { readonly title: string; readonly values: Readonly<Record<string, unknown>> }) {
  const found = Object.entries(values).filter(([, value]) => value !== null && value !== "");
  if (found.length === 0) return null;
  return (
    <Part title={title}>
      <List>
        {found.map(([name, value]) => (
          <Pair key={name} name={name} value={typeof value === "string" ? value : JSON.stringify(value)} />
        ))}
      </List>
    </Part>
  );
}

function List({ children }: { readonly children: ReactNode }) {
  return <dl className={styles["facts"]}>{children}</dl>;
}

function Pair({ name, value }: { readonly name: string; readonly value: string }) {
  return (
    <div className={styles["pair"]}>
      <dt>{name}</dt>
      <dd>{value}</dd>
    </div>
  );
}
