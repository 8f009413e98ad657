import { Link } from "@tanstack/react-router";
import type { Note } from "../../api/schema";
import { Coded, Empty, FaultBox, Icon, Skeleton } from "../../ui";
import type { Check } from "./use-check";
import styles from "./plan.module.css";

/** What is wrong, line by line; a click goes there. */
export function ProblemList({ check, onJump }: { readonly check: Check; readonly onJump: (line: number, column?: number) => void }) {
  const { found, fault } = check;
  if (fault) return <FaultBox fault={fault} />;
  if (!found) return <Skeleton />;
  if (found.problems.length === 0) return <Empty title="No problems">hpcbench finds no error in this file.</Empty>;
  return (
    <ul className={styles.problems} data-old={check.running || undefined}>
      {found.problems.map((note, place) => (
        <li key={place}>
          <Icon name={note.severity === "error" ? "cross" : "warning"} size={14} label={note.severity} />
          <Place note={note} onJump={onJump} />
          <span className={styles.what}>
            <Coded text={note.message} />
            {note.remedy && <span className={styles.remedy}><Coded text={note.remedy} /></span>}
          </span>
        </li>
      ))}
    </ul>
  );
}

function Place({ note, onJump }: { readonly note: Note; readonly onJump: (line: number, column?: number) => void }) {
  const at = `${note.line}:${note.column}`;
  if (!note.file) {
    return (
      <button type="button" className={styles.place} onClick={() => onJump(note.line, note.column)} aria-label={`${at}, go to this line and column`}>
        {at}
      </button>
    );
  }
  if (!note.definition) return <span className={styles.place}>{`${note.file}:${at}`}</span>;
  return (
    <Link className={styles.place} to="/plans/$definition" params={{ definition: note.definition }} search={{ line: note.line } as never}>
      {`${note.file}:${at}`}
    </Link>
  );
}
