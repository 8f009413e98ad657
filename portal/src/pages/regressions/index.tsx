import { useState } from "react";

import { useApi } from "../../api";
import { usePlace } from "../../app/place";
import { usePageTitle } from "../../app/title";
import { Button, Command, Empty, FaultBox, Select, Skeleton, TextInput, Toggle, useNow } from "../../ui";
import { counted } from "../../ui/format";
import layout from "../../ui/layout.module.css";
import { Details } from "./Details";
import { columnsOf, MOST_COLUMNS } from "./heat";
import { HeatMap } from "./HeatMap";
import { Legend } from "./Legend";
import styles from "./Regressions.module.css";
import { passing, sentence, sinceOf } from "./rows";

/** Rows drawn at first, and more at a time. */
const SOME = 60;

const SINCE = [
  { value: "30", label: "30 days" },
  { value: "90", label: "90 days" },
  { value: "365", label: "a year" },
  { value: "all", label: "all time" },
] as const;

/** Figures of plans over months: what fell, by how much, since when, and who knows. */
export default function RegressionsPage() {
  const { search, update } = usePlace("/regressions");
  const now = useNow();
  const [working, setWorking] = useState(false);
  const asked = { plan: search.plan || null, name: search.name || null, since: sinceOf(search, now) };
  const found = useApi("/regressions", { query: asked }, { keep: true, every: working ? 1000 : false });
  const [some, setSome] = useState(SOME);
  usePageTitle("Regressions");
  const { data } = found;
  const pending = (data?.pending ?? 0) > 0;
  if (pending !== working) setWorking(pending);
  const rows = passing(data?.rows ?? [], search, now);
  const shown = rows.slice(0, some);
  const columns = columnsOf(shown);
  const older = Math.max(0, columns.length - MOST_COLUMNS);
  const once = (data?.rows ?? []).filter((row) => row.points.length < 2).length;
  const current = data?.rows.find((row) => row.id === search.row);
  const filtered = search.plan !== "" || search.name !== "" || search.text !== "" || search.fell || !search.muted;
  return (
    <div className={layout["page"]}>
      <header className={styles["head"]}>
        <h1>Regressions</h1>
        {data && <p role="status">{sentence(rows, now)}</p>}
      </header>
      <div className={styles["bar"]} role="search" aria-label="Trends">
        <TextInput label="Search plans, run tasks, models" value={search.text} onChange={(text) => update({ text }, { replace: true })} search width={240} />
        <Select label="Plan" value={search.plan} options={[{ value: "", label: "all plans" }, ...(data?.plans ?? []).map((value) => ({ value }))]} onChange={(plan) => update({ plan, row: "", change: "" })} />
        <Select label="Figure" value={search.name} options={[{ value: "", label: "all metrics of quality" }, ...(data?.names ?? []).map((value) => ({ value }))]} onChange={(name) => update({ name, row: "", change: "" })} />
        <Select label="Since" value={search.since} options={SINCE} onChange={(since) => update({ since })} />
        <Toggle label="Worse only" checked={search.fell} onChange={(fell) => update({ fell })} />
        <Toggle label="Acknowledged" checked={search.muted} onChange={(muted) => update({ muted })} />
      </div>
      <FaultBox fault={found.error} retry={() => void found.refetch()} />
      {found.isPending && <Skeleton lines={8} />}
      {data && rows.length === 0 && (
        <Empty title={filtered ? "No trend passes the filter" : "No trends yet"} next={filtered ? <Button onClick={() => update({ plan: "", name: "", text: "", fell: false, muted: true })}>Clear the filter</Button> : <Begin />}>
          {filtered ? null : "A trend needs two finished experiments of one plan."}
        </Empty>
      )}
      {rows.length > 0 && (
        <div className={current ? styles["both"] : styles["one"]}>
          <div className={layout["stack"]}>
            <Legend />
            <HeatMap rows={shown} columns={columns.slice(older)} now={now} current={search.row} onOpen={(row, change) => update({ row: row.id, change: change?.id ?? "" })} />
            <p className={styles["notes"]}>
              {pending && <span role="status">{counted(data?.pending ?? 0, "row")} not computed yet. </span>}
              {data !== undefined && data.left_out > 0 && <span>{counted(data.left_out, "more row")} left out: choose a plan or a figure. </span>}
              {older > 0 && <span>{counted(older, "older column")} not shown: choose a plan or a shorter time. </span>}
              {once > 0 && <span>{counted(once, "row")} with a single run not shown. </span>}
              {rows.length > some && (
                <Button small onClick={() => setSome(some + SOME)}>
                  {counted(rows.length - some, "more row")}
                </Button>
              )}
            </p>
          </div>
          {current && <Details row={current} chosen={search.change} now={now} onChoose={(change) => update({ change }, { replace: true })} onClose={() => update({ row: "", change: "" })} />}
        </div>
      )}
    </div>
  );
}

function Begin() {
  return (
    <div className={layout["stack"]}>
      <Command title="Run a plan again" text="hpcbench submit plan.yaml" />
      <Command title="Run it every night" text="hpcbench cron install plan.yaml --at '0 2 * * *'" />
    </div>
  );
}
