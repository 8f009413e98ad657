import { Link } from "@tanstack/react-router";
import { useMemo, useState } from "react";
import type { Failure } from "../api/schema";
import { Ago, Button, Icon } from "../ui";
import { count, counted } from "../ui/format";
import { folded } from "./fold-failures";
import { logOf } from "./log-of";
import styles from "./failures.module.css";

/** Causes, and run tasks of a cause, that are shown at once. */
const CAUSES = 5;
const FEW = 4;
/** Run tasks of a cause that are named at all. */
const MOST = 200;

interface Props {
  readonly experiment: string;
  readonly failures: readonly Failure[];
  /** Whether to name the run tasks that were hit. */
  readonly links?: boolean;
}

/** What went wrong, by cause, the most frequent first. */
export function Failures({ experiment, failures, links = true }: Props) {
  const [all, setAll] = useState(false);
  const causes = useMemo(() => folded(failures), [failures]);
  return (
    <>
      <ul className={styles.list}>
        {causes.slice(0, all ? undefined : CAUSES).map((one) => (
          <li key={one.kind + one.cause} className={styles.one}>
            <span className={styles.count} title={counted(one.count, "time")}>
              <Icon name="warning" size={14} />
              {count(one.count)}×
            </span>
            <div className={styles.told}>
              <p className={styles.cause}>{one.cause}</p>
              <p className={styles.where}>
                {whereOf(one)}
                {typeof one.last === "number" && (
                  <>
                    {" · "}
                    <Ago time={one.last} />
                  </>
                )}
              </p>
              {one.log && (
                <p className={styles.where}>
                  More in{" "}
                  <Link to="/e/$experiment" params={{ experiment }} search={{ tab: "logs", log: logOf(one) }} title={one.log}>
                    <code className={styles.file}>{one.log.split("/").slice(-2).join("/")}</code>
                  </Link>
                </p>
              )}
              {links && one.run_tasks.length > 0 && <Hit experiment={experiment} names={one.run_tasks} />}
            </div>
          </li>
        ))}
      </ul>
      {causes.length > CAUSES && (
        <Button small kind="quiet" onClick={() => setAll(!all)}>
          {all ? "Fewer" : `All ${counted(causes.length, "cause")}`}
        </Button>
      )}
    </>
  );
}

function whereOf(one: Failure): string {
  const models = one.models.length > 3 ? counted(one.models.length, "model") : one.models.join(", ");
  const nodes = one.nodes.length > 3 ? counted(one.nodes.length, "node") : one.nodes.join(", ");
  return [one.kind.replaceAll("_", " "), models, nodes && `on ${nodes}`].filter(Boolean).join(" · ");
}

function Hit({ experiment, names }: { readonly experiment: string; readonly names: readonly string[] }) {
  const link = (name: string) => (
    <Link key={name} className={styles.hit} to="/e/$experiment/t/$task" params={{ experiment, task: name }} preload={false}>
      {name}
    </Link>
  );
  const rest = names.slice(FEW, MOST);
  return (
    <div className={styles.hits}>
      {names.slice(0, FEW).map(link)}
      {rest.length > 0 && (
        <details className={styles.more}>
          <summary>and {counted(names.length - FEW, "more run task")}</summary>
          <div className={styles.hits}>
            {rest.map(link)}
            {names.length > MOST && <span className={styles.where}>and {count(names.length - MOST)} more: filter the table of run tasks by state</span>}
          </div>
        </details>
      )}
    </div>
  );
}
