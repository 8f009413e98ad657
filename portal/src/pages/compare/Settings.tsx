import { useState } from "react";

import type { Candidate } from "../../api/schema";
import { Button, Empty, Scroller, TextInput } from "../../ui";
import { counted } from "../../ui/format";
import styles from "./Settings.module.css";
import { settingOf } from "./told";

/** Rows at first, and more at a time. */
const SOME = 100;

/** What is configured differently: a path a line. */
export function Settings({ candidate }: { readonly candidate: Candidate }) {
  const [text, setText] = useState("");
  const [some, setSome] = useState(SOME);
  const all = candidate.differences.map(settingOf);
  if (all.length === 0) return <Empty title="Nothing is configured differently" />;
  const rows = all.filter((row) => `${row.path} ${row.one} ${row.other}`.toLowerCase().includes(text.toLowerCase()));
  return (
    <div className={styles["settings"]}>
      <TextInput label="Search settings" value={text} onChange={setText} search width={280} />
      <Scroller className={styles["scroll"]} label="Configured differently">
        <table className={styles["table"]} aria-label="Configured differently">
          <thead>
            <tr>
              <th scope="col">setting</th>
              <th scope="col">baseline</th>
              <th scope="col">candidate</th>
            </tr>
          </thead>
          <tbody>
            {rows.slice(0, some).map((row) => (
              <tr key={row.path}>
                <th scope="row">{row.path}</th>
                <td>{row.one}</td>
                <td>{row.other}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </Scroller>
      {rows.length > some && <Button onClick={() => setSome(some + SOME)}>{counted(rows.length - some, "more setting")}</Button>}
    </div>
  );
}
