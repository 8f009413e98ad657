import { Facts } from "../../parts/Facts";
import { Button, Empty, FaultBox, Skeleton } from "../../ui";
import { bytes, count, duration, number } from "../../ui/format";
import type { Check } from "./use-check";
import layout from "../../ui/layout.module.css";
import styles from "./plan.module.css";

/** What the plan would take, and where it fits. */
export function EstimateView({ check }: { readonly check: Check }) {
  const { estimated, estimating, outdated, found, fault } = check;
  const errors = found?.problems.some((note) => note.severity === "error") ?? false;
  const estimate = estimated?.estimate;
  if (estimating) return <Skeleton lines={6} label="Reading datasets, querying Slurm" />;
  if (fault) return <FaultBox fault={fault} retry={check.estimate} />;
  if (errors && !estimate) return <Empty title="No estimate while there are errors" />;
  if (estimated?.estimate_fault && !estimate) {
    return (
      <Empty title="There is no estimate" next={<Button onClick={check.estimate}>Try again</Button>}>
        <p className={styles.fault}>{estimated.estimate_fault}</p>
      </Empty>
    );
  }
  if (!estimate) {
    return (
      <Empty title="What resources does the plan need?" next={<Button kind="primary" onClick={check.estimate}>Estimate</Button>}>
        The estimate reads the datasets and earlier experiments, and asks Slurm when resources are free. It submits nothing.
      </Empty>
    );
  }
  return (
    <div className={layout.stack} data-old={outdated || undefined}>
      {outdated && (
        <p className={styles.outdated} role="status">
          The text has changed since the estimate.{" "}
          <Button small onClick={check.estimate}>
            Estimate again
          </Button>
        </p>
      )}
      <Facts
        label="Resources that the plan needs"
        facts={[
          { label: "Samples", value: count(estimate.samples) },
          { label: "GPU-hours", value: estimate.gpu_hours === null ? "none" : number(estimate.gpu_hours), note: estimate.gpu_hours === null ? "no job uses a GPU" : undefined },
          { label: "Run time", value: estimate.hours === null ? "–" : duration(estimate.hours * 3600), note: "without the wait in the queue" },
          { label: "Answers on disk", value: bytes(estimate.bytes) },
          { label: "Based on", value: estimate.measured ? "earlier experiments" : "defaults", note: estimate.measured ? undefined : "at least in part" },
        ]}
      />
      {/* Scrolls sideways: the keyboard must reach it. */}
      {/* eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex */}
      <pre className={styles.lines} tabIndex={0} aria-label="Output of hpcbench submit --estimate">
        {estimate.lines.join("\n")}
      </pre>
    </div>
  );
}
