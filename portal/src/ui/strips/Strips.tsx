import { lazy, Suspense, useMemo, useState } from "react";
import type { Resources } from "../../api/schema";
import { Button } from "../Button";
import { Empty } from "../Empty";
import { Skeleton } from "../Skeleton";
import { groupsOf } from "./groups";
import { StripTable } from "./StripTable";
import styles from "./Strips.module.css";

const Drawn = lazy(() => import("./Drawn"));

/** GPU, memory, CPU and rate over time, one strip a figure; the cursor is in all of them at once. */
export function Strips({ resources }: { readonly resources: Resources }) {
  const [table, setTable] = useState(false);
  const groups = useMemo(() => groupsOf(resources), [resources]);
  if (groups.length === 0) return <Empty title="Nothing was measured">The monitor of each worker writes a reading every few seconds while a job runs.</Empty>;
  return (
    <div className={styles.whole}>
      <div className={styles.head}>
        <Button kind="quiet" small icon={table ? "chart" : "table"} aria-pressed={table} onClick={() => setTable(!table)}>
          {table ? "Strips" : "Table"}
        </Button>
      </div>
      {table ? (
        <StripTable groups={groups} />
      ) : (
        <Suspense fallback={<Skeleton lines={6} label="Loading the strips" />}>
          <Drawn groups={groups} marks={resources.marks} />
        </Suspense>
      )}
    </div>
  );
}
