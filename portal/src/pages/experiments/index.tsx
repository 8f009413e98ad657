import { Link, useNavigate } from "@tanstack/react-router";
import { useMemo } from "react";
import { isBundle } from "../../api/bundle";
import { useApi, usePages } from "../../api";
import { useLive } from "../../app/live";
import { usePlace } from "../../app/place";
import { Button, ColumnChooser, Command, Empty, Export, FaultBox, Icon, Skeleton, shownColumns, Stale, Table } from "../../ui";
import { count } from "../../ui/format";
import layout from "../../ui/layout.module.css";
import { columnsOf, scoresIn } from "./columns";
import styles from "./experiments.module.css";
import { Filters } from "./Filters";
import { Running } from "./Running";
import { FILTERS, queryOf } from "./search";
import { Views } from "./Views";

/** Runs that can be compared at once. */
const MOST = 8;

/** All experiments: what runs now, and a list to filter, sort and choose from. */
export default function ExperimentsPage() {
  const { search, update } = usePlace("/");
  const navigate = useNavigate();
  const live = useLive();
  const scores = useApi("/experiments/score-columns", { query: queryOf(search) }, { keep: true });
  const columns = useMemo(() => columnsOf(scores.data ?? []), [scores.data]);
  const column = scoresIn(shownColumns(columns, search.columns));
  const query = { ...queryOf(search), sort: search.sort, order: search.order, column };
  // Which columns there are decides what is asked.
  const { rows, total, floor, loading, fault, again, updatedAt } = usePages("/experiments", scores.isPending ? null : { query });
  const picked = useMemo(() => new Set(search.picked), [search.picked]);
  const filtered = search.text !== "" || FILTERS.some((filter) => search[filter].length > 0);
  const old = live.state === "stale" ? updatedAt / 1000 : null;
  const none = total === 0 && !filtered;
  return (
    <div className={layout.page}>
      <div className={layout.bar}>
        <h1>
          Experiments {total !== undefined && <span className={styles.total}>{count(total)}{floor && "+"}</span>}
        </h1>
        {!none && (
          <div className={layout.row}>
            <CompareButton picked={search.picked} onClear={() => update({ picked: [] }, { replace: true })} />
            {!isBundle() && <Views search={search} update={update} />}
            <ColumnChooser columns={columns} chosen={search.columns} onChoose={(columns) => update({ columns }, { replace: true })} />
            <Export path="/experiments/export" params={{ query }} />
          </div>
        )}
      </div>
      <Running old={old !== null} />
      {!none && !isBundle() && <Filters search={search} update={update} />}
      <FaultBox fault={fault} retry={again} />
      {(loading || scores.isPending) && <Skeleton lines={8} />}
      {none && <Start />}
      {!none && !loading && !scores.isPending && (
        <Stale since={old}>
          <div className={styles.table}>
            <Table
              label="Experiments"
              rows={rows}
              columns={columns}
              rowKey={(row) => row.id}
              chosen={search.columns}
              sort={{ by: search.sort, order: search.order }}
              onSort={({ by, order }) => update({ sort: by, order })}
              {...(isBundle() ? {} : { selected: picked, onSelected: (next: ReadonlySet<string>) => update({ picked: [...next] }, { replace: true }) })}
              onOpen={(row) => void navigate({ to: "/e/$experiment", params: { experiment: row.id } })}
              empty={<Empty title="No experiment passes the filters">Remove a filter, or search for other words.</Empty>}
            />
          </div>
        </Stale>
      )}
    </div>
  );
}

function CompareButton({ picked, onClear }: { readonly picked: readonly string[]; readonly onClear: () => void }) {
  if (picked.length === 0) return null;
  const right = picked.length >= 2 && picked.length <= MOST;
  return (
    <>
      {right ? (
        <Link to="/compare" search={{ runs: picked }} className={styles.compare}>
          <Icon name="compare" size={15} /> Compare {picked.length}
        </Link>
      ) : (
        <span className={styles.soft} role="status">
          {picked.length < 2 ? "Pick one more to compare" : `At most ${MOST} can be compared`}
        </span>
      )}
      <Button kind="quiet" small onClick={onClear}>
        Clear selection
      </Button>
    </>
  );
}

function Start() {
  return (
    <Empty
      title="No experiments yet"
      next={
        <div className={styles.start}>
          <Command title="1. Set hpcbench up for this cluster, once" text="hpcbench init" />
          <Command title="2. Check a plan; nothing is submitted" text="hpcbench submit plan.yaml --dry-run" />
          <Command title="3. Run it" text="hpcbench submit plan.yaml" />
        </div>
      }
    >
      An experiment appears here when you submit it, and its progress updates as answers come in.
    </Empty>
  );
}
