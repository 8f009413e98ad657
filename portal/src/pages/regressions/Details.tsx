import { Link } from "@tanstack/react-router";
import { useState } from "react";

import { useMutate } from "../../api";
import type { Regression, TrendRow } from "../../api/schema";
import { Ago, Button, FaultBox, StateChip, toast } from "../../ui";
import { moment, number } from "../../ui/format";
import { join } from "../../ui/join";
import { Acknowledge } from "./Acknowledge";
import styles from "./Details.module.css";
import { inPoints, shiftOf, shown } from "./heat";
import { isMuted } from "./rows";
import { TrendChart } from "./TrendChart";

interface Props {
  readonly row: TrendRow;
  /** Id of the selected change; empty: the newest. */
  readonly chosen: string;
  readonly now: number;
  readonly onChoose: (change: string) => void;
  readonly onClose: () => void;
}

/** A trend closely: its line, where its level changed, and what to do about it. */
export function Details({ row, chosen, now, onChoose, onClose }: Props) {
  const change = row.changes.find((one) => one.id === chosen) ?? row.changes.at(-1);
  return (
    <section className={styles["details"]} aria-label={`${row.name} of ${row.run_task}`} data-testid="details">
      <header className={styles["head"]}>
        <div>
          <h2>
            {row.name}
            {row.unit && `, ${row.unit}`} <span className={styles["way"]}>{row.higher_is_better ? "more is better" : "less is better"}</span>
          </h2>
          <p className={styles["soft"]}>
            {row.plan} · {row.run_task} · {row.model}
          </p>
        </div>
        <Button kind="quiet" small icon="cross" aria-label="Close" onClick={onClose} />
      </header>
      <TrendChart row={row} change={change?.id ?? ""} />
      {row.changes.length === 0 && <p className={styles["soft"]}>Its level has not changed beyond chance in these {row.points.length} runs.</p>}
      <ul className={styles["changes"]}>
        {[...row.changes].reverse().map((one) => (
          <li key={one.id} className={join(styles["change"], one === change && styles["looked"])}>
            <ChangeCard row={row} change={one} now={now} open={one === change} onOpen={() => onChoose(one.id)} />
          </li>
        ))}
      </ul>
    </section>
  );
}

interface CardProps {
  readonly row: TrendRow;
  readonly change: Regression;
  readonly now: number;
  readonly open: boolean;
  readonly onOpen: () => void;
}

function ChangeCard({ row, change, now, open, onOpen }: CardProps) {
  const by = shiftOf(row, change.before, change.after);
  const muted = isMuted(change, now);
  return (
    <>
      <button type="button" className={styles["sum"]} aria-expanded={open} onClick={onOpen}>
        <StateChip state={change.worse ? "worse" : "better"} />
        <span>
          {number(change.before)} → {number(change.after)}
        </span>
        <strong>
          {shown(by)} {inPoints(row) ? "points" : "%"}
        </strong>
        <span className={styles["when"]}>
          <Ago time={change.time} />
        </span>
      </button>
      {open && (
        <>
          <dl className={styles["ends"]}>
            <dt>{change.worse ? "last good" : "last before"}</dt>
            <dd>
              <Link to="/e/$experiment" params={{ experiment: change.last_good }}>
                {change.last_good}
              </Link>
            </dd>
            <dt>{change.worse ? "first bad" : "first after"}</dt>
            <dd>
              <Link to="/e/$experiment" params={{ experiment: change.first }}>
                {change.first}
              </Link>
            </dd>
          </dl>
          <div className={styles["actions"]}>
            <Link className={styles["compare"]} to="/compare" search={{ runs: [change.last_good, change.first] }}>
              Compare the two
            </Link>
            {change.worse && <Acknowledgements change={change} muted={muted} />}
          </div>
        </>
      )}
    </>
  );
}

function Acknowledgements({ change, muted }: { readonly change: Regression; readonly muted: boolean }) {
  const [asking, setAsking] = useState(false);
  const back = useMutate("delete", "/regressions/{regression}/acknowledgement");
  const told = change.acknowledged;
  const takeBack = () =>
    back.run({ path: { regression: change.id } }).then(
      () => toast("It is an alarm again"),
      () => undefined,
    );
  return (
    <>
      <FaultBox fault={back.fault} />
      {told && (
        <p className={styles["told"]}>
          {muted ? "Acknowledged" : "Was acknowledged"} by {told.by}, {moment(told.time).slice(0, 16)}
          {told.until ? `, until ${moment(told.until).slice(0, 10)}` : ""}: <q>{told.reason}</q>
        </p>
      )}
      {muted ? (
        <Button onClick={() => void takeBack()} disabled={back.pending}>
          Withdraw
        </Button>
      ) : (
        <Button onClick={() => setAsking(true)}>Acknowledge …</Button>
      )}
      {asking && <Acknowledge id={change.id} onClose={() => setAsking(false)} />}
    </>
  );
}
