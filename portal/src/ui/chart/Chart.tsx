import { lazy, Suspense, useId, useState } from "react";
import type { Figure } from "../../api/schema";
import { Button } from "../Button";
import { Skeleton } from "../Skeleton";
import { FigureTable } from "./FigureTable";
import styles from "./Chart.module.css";

const Drawing = lazy(() => import("./Drawing"));

interface Props {
  readonly figure: Figure;
  /** Pixels. */
  readonly height?: number;
}

/** A figure; its table is one button away, and words say what it shows. */
export function Chart({ figure, height = 340 }: Props) {
  const [table, setTable] = useState(false);
  const told = useId();
  return (
    <figure className={styles.figure} aria-describedby={told}>
      <figcaption className={styles.head}>
        <span className={styles.title}>{figure.title}</span>
        <Button kind="quiet" small icon={table ? "chart" : "table"} aria-pressed={table} onClick={() => setTable(!table)}>
          {table ? "Chart" : "Table"}
        </Button>
      </figcaption>
      {table ? (
        <FigureTable figure={figure} />
      ) : (
        <Suspense fallback={<Skeleton lines={6} label="Loading the chart" />}>
          <Drawing figure={figure} height={height} />
        </Suspense>
      )}
      <p id={told} className="visually-hidden">
        {figure.described}
      </p>
      {figure.notes.length > 0 && (
        <ul className={styles.notes}>
          {figure.notes.map((note) => (
            <li key={note}>{note}</li>
          ))}
        </ul>
      )}
    </figure>
  );
}
