import { Link } from "@tanstack/react-router";
import { usePages } from "../../api";
import { isBundle } from "../../api/bundle";
import type { ExperimentRow } from "../../api/schema";
import { usePageTitle } from "../../app/title";
import { Bar, Cut, StateChip } from "../../ui";
import { count, number } from "../../ui/format";
import styles from "./experiments.module.css";

/** States in which something happens or is about to. */
const UNDER_WAY = ["submitting", "pending", "running", "evaluating", "stalled", "paused"] as const;
const SHOWN = 12;

/** What is under way now, each on a card; nothing where nothing is. */
export function Running({ old }: { readonly old: boolean }) {
  const { rows, total = 0 } = usePages("/experiments", { query: { state: UNDER_WAY, sort: "updated", order: "desc" } }, { limit: SHOWN });
  const found = Array.from({ length: Math.min(SHOWN, total) }, (_, place) => rows.at(place)).filter((row): row is ExperimentRow => row !== undefined);
  const samples = found.reduce((sum, row) => sum + row.samples, 0);
  const answered = found.reduce((sum, row) => sum + row.answered, 0);
  usePageTitle("Experiments", { progress: found.some((row) => row.state === "running") && samples ? answered / samples : null });
  // A bundle has one list, whatever is asked for, and nothing runs in it.
  if (found.length === 0 || isBundle()) return null;
  return (
    <section aria-labelledby="running-head" className={styles.running} data-old={old || undefined}>
      <h2 id="running-head">
        Running now <span className={styles.soft}>{count(total)}</span>
      </h2>
      <ul className={styles.cards}>
        {found.map((row) => (
          <li key={row.id}>
            <Card row={row} />
          </li>
        ))}
      </ul>
    </section>
  );
}

function Card({ row }: { readonly row: ExperimentRow }) {
  const left = [row.rate ? `${number(row.rate)} answers/s` : null, row.eta].filter(Boolean).join(" · ");
  return (
    <Link to="/e/$experiment" params={{ experiment: row.id }} className={styles.card}>
      <span className={styles.cardHead}>
        <span className={styles.cardName}>
          <Cut text={row.id} />
        </span>
        <StateChip state={row.state} />
      </span>
      <span className={styles.cardModels}>{row.models.join(", ")}</span>
      <Bar value={row.answered} max={row.samples} label={`Samples of ${row.id} done`} />
      <span className={styles.cardFoot}>
        <span>
          {count(row.answered)} of {count(row.samples)}
        </span>
        <span>{left}</span>
      </span>
    </Link>
  );
}
