import { Link, useNavigate } from "@tanstack/react-router";
import { useMemo, useRef } from "react";
import { useApi } from "../../api";
import type { DefinitionRow } from "../../api/schema";
import { usePlace } from "../../app/place";
import { useSession } from "../../app/session";
import { usePageTitle } from "../../app/title";
import { Ago, type Column, Cut, Empty, FaultBox, Icon, Select, Skeleton, Table, TextInput, Toggle, useHotkeys } from "../../ui";
import { KINDS, kindOf, ONE } from "../plan/kinds";
import { byKind, filtered, ORIGINS } from "./filter";
import { NewButton } from "./NewButton";
import layout from "../../ui/layout.module.css";
import styles from "./plans.module.css";

const COLUMNS: readonly Column<DefinitionRow>[] = [
  {
    id: "name",
    head: "Name",
    width: 280,
    grow: true,
    cell: (row) => (
      <Link to="/plans/$definition" params={{ definition: row.id }}>
        <Cut text={row.name} />
      </Link>
    ),
  },
  { id: "origin", head: "Source", width: 170, cell: (row) => ORIGINS[row.origin] },
  { id: "folder", head: "Folder", width: 260, grow: true, cell: (row) => <span className={layout.mono}>{row.folder}</span> },
  {
    id: "state",
    head: "Notes",
    width: 160,
    cell: (row) => (
      <span className={layout.soft}>
        {!row.counts ? "hidden by another definition" : row.writable ? "" : <><Icon name="key" size={12} /> read only</>}
      </span>
    ),
  },
  { id: "updated", head: "Changed", width: 110, align: "end", cell: (row) => <Ago time={row.updated} /> },
];

/** Plans, and the definitions that they name. */
export default function PlansPage() {
  const { search, update } = usePlace("/plans");
  const navigate = useNavigate();
  const { session } = useSession();
  const found = useApi("/definitions", { query: {} }, { fresh: 10_000 });
  const kind = kindOf(search.kind);
  const counts = useMemo(() => byKind(found.data ?? []), [found.data]);
  const rows = useMemo(() => filtered((found.data ?? []).filter((row) => row.kind === kind), search.text, search.own), [found.data, kind, search.text, search.own]);
  const bar = useRef<HTMLDivElement>(null);
  usePageTitle("Plans");
  useHotkeys({ "/": ["search", () => bar.current?.querySelector("input")?.focus()] }, "Plans");
  const open = (row: DefinitionRow) => void navigate({ to: "/plans/$definition", params: { definition: row.id } });
  return (
    <div className={styles.page}>
      <div className={layout.bar} ref={bar}>
        <div className={layout.row}>
          <h1>{KINDS[kind]}</h1>
          <Select label="Kind of file" value={kind} options={(Object.keys(KINDS) as (keyof typeof KINDS)[]).map((value) => ({ value, label: KINDS[value], count: counts.get(value) ?? 0 }))} onChange={(value) => update({ kind: value, text: "" })} />
          <TextInput search label="Search by name" value={search.text} delay={150} width={220} onChange={(text) => update({ text }, { replace: true })} />
          <Toggle label="Yours only" checked={search.own} onChange={(own) => update({ own })} />
        </div>
        <NewButton kind={kind} />
      </div>
      {session?.may_edit === false && (
        <p className={layout.soft}>
          This portal is read-only: you can check and download plans and definitions. To save them here, start the portal with <code>--allow-edit</code>.
        </p>
      )}
      {found.error && <FaultBox fault={found.error} retry={() => void found.refetch()} />}
      {!found.data && !found.error && <Skeleton lines={8} />}
      {found.data && (
        <Table
          label={KINDS[kind]}
          rows={rows}
          columns={COLUMNS}
          rowKey={(row) => row.id}
          onOpen={open}
          height="fill"
          empty={
            <Empty title={search.text ? "No name contains these words" : `No ${ONE[kind]} here yet`} next={<NewButton kind={kind} />}>
              {kind === "plans" && "Plans are YAML files with run_tasks or a matrix, in the folder that the portal was started in, or that --plans names."}
            </Empty>
          }
        />
      )}
    </div>
  );
}
