import { Link } from "@tanstack/react-router";
import { useEffect } from "react";

import { usePages } from "../../api";
import type { FlipRow } from "../../api/schema";
import { Button, Empty, Export, FaultBox, Panel, Skeleton, useHotkeys } from "../../ui";
import { FacetStrip } from "../samples/FacetStrip";
import { facetKeys, type FacetValue, grouped } from "../samples/facets";
import { hasFacet, withFacet } from "../samples/filter";
import { AnswerText } from "./AnswerText";
import { FlipBar } from "./FlipBar";
import { type Counts, score, WORDS } from "./flips";
import { FlipView } from "./FlipView";
import styles from "./Flips.module.css";
import type { Chosen } from "./Scores";
import type { Change, FlipFilter, FlipPlace } from "./search";

interface Props {
  readonly baseline: string;
  readonly candidate: string;
  readonly chosen: Chosen;
  readonly common: boolean;
  readonly view: FlipPlace & FlipFilter;
  readonly onChange: (change: Partial<FlipFilter> & { readonly change?: Change }) => void;
  readonly onView: (change: Partial<FlipPlace>) => void;
}

/** Rows fetched at a time. */
const SOME = 30;

/** Samples that the candidate did otherwise, or alike: both answers beside each other. */
export function Flips({ baseline, candidate, chosen, common, view, onChange, onView }: Props) {
  const { task, other, by, change } = chosen;
  const filter: FlipFilter = { mistake: view.mistake, where: view.where };
  const query = { run_task: task, other, metric: by, change, common, mistake: filter.mistake || undefined, where: filter.where };
  const found = usePages("/compare/flips", { query: { ...query, baseline, candidate } }, { limit: SOME });
  const isChosen = (field: string, value: string) => hasFacet(filter, field, value);
  const groups = grouped(found.first?.facets ?? [], isChosen);
  const onTurn = ({ field, value }: FacetValue) => onChange(withFacet(filter, field, value));
  const isFiltered = filter.mistake !== "" || filter.where.length > 0;
  const rows = Array.from({ length: found.rows.count }, (_, at) => found.rows.at(at)).filter((row) => row !== undefined);
  const tasks = task === other ? task : `${task} → ${other}`;
  const open = view.flip === null ? undefined : found.rows.at(view.flip);
  const awaited = view.flip !== null && open === undefined && found.more;
  const { next } = found;
  useEffect(() => {
    if (awaited) next();
  });
  useHotkeys(facetKeys(groups, onTurn), "Filter");
  useHotkeys(view.flip === null && rows.length > 0 ? { f: ["first sample of the list", () => onView({ flip: 0, image: 0 })] } : {}, "Samples of the comparison");
  return (
    <Panel
      title={`Samples of ${tasks}, ${by}`}
      actions={rows.length > 0 && <Export label={`Export ${WORDS[change]}`} path="/compare/export" params={{ query: { ...query, what: "flips", runs: [baseline, candidate] } }} />}
    >
      <div className={styles["flips"]} data-testid="flips">
        {found.first && <FlipBar label={tasks} counts={countsFrom(found.first.counts)} chosen={change} onChoose={(next) => onChange({ change: next })} large />}
        <FacetStrip groups={groups} chosen={isChosen} onTurn={onTurn} />
        <FaultBox fault={found.fault} retry={found.again} />
        {found.loading && <Skeleton lines={5} />}
        {found.first && rows.length === 0 && (
          <Empty title={isFiltered ? "No sample passes the filter" : `No sample is ${WORDS[change]}`} next={isFiltered && <Button onClick={() => onChange({ mistake: "", where: [] })}>Clear the filter</Button>} />
        )}
        {view.flip !== null && open ? (
          <FlipView
            key={open.sample}
            row={open}
            neighbours={[found.rows.at(view.flip - 1), found.rows.at(view.flip + 1)]}
            at={view.flip}
            total={found.total ?? rows.length}
            sides={[
              { experiment: experimentOf(baseline), task },
              { experiment: experimentOf(candidate), task: other },
            ]}
            metric={by}
            view={view}
            onView={onView}
          />
        ) : awaited ? (
          <Skeleton lines={8} />
        ) : (
          <>
            <ol className={styles["list"]} aria-busy={found.old}>
              {rows.map((row, at) => (
                <Flip key={row.sample} row={row} baseline={baseline} candidate={candidate} task={task} other={other} onOpen={() => onView({ flip: at, image: 0 })} />
              ))}
            </ol>
            {found.more && <Button onClick={found.next}>More samples</Button>}
          </>
        )}
      </div>
    </Panel>
  );
}

interface FlipProps {
  readonly row: FlipRow;
  readonly baseline: string;
  readonly candidate: string;
  readonly task: string;
  readonly other: string;
  readonly onOpen: () => void;
}

function Flip({ row, baseline, candidate, task, other, onOpen }: FlipProps) {
  const [reference = ""] = row.references;
  return (
    <li className={styles["flip"]}>
      <div className={styles["head"]}>
        <Button kind="quiet" small onClick={onOpen} aria-label={`Show ${row.sample} with its page and both answers`}>
          <strong className={styles["sample"]}>{row.sample}</strong>
        </Button>
        <span className={styles["soft"]}>{row.document}</span>
        <span className={styles["scores"]}>
          {score(row.scores[0])} → {score(row.scores[1])}
        </span>
      </div>
      <div className={styles["sides"]}>
        <div className={styles["side"]}>
          <h3>Reference{row.references.length > 1 ? `, one of ${row.references.length}` : ""}</h3>
          <p className={styles["text"]}>{reference || "none"}</p>
        </div>
        <Side title="Baseline" experiment={experimentOf(baseline)} task={task} place={row.places[0]} reference={reference} answer={row.answers[0]} note={row.notes[0]} />
        <Side title="Candidate" experiment={experimentOf(candidate)} task={other} place={row.places[1]} reference={reference} answer={row.answers[1]} note={row.notes[1]} />
      </div>
    </li>
  );
}

interface SideProps {
  readonly title: string;
  readonly experiment: string;
  readonly task: string;
  readonly place: number | undefined;
  readonly reference: string;
  readonly answer: string | null;
  /** Why there is no answer, or why it cannot be read. */
  readonly note: string;
}

function Side({ title, experiment, task, place, reference, answer, note }: SideProps) {
  return (
    <div className={styles["side"]}>
      <h3>
        {title}{" "}
        {place !== undefined && (
          <Link to="/e/$experiment/t/$task/samples" params={{ experiment, task }} search={{ at: place }} aria-label={`Open this sample in the ${title.toLowerCase()}`}>
            open
          </Link>
        )}
      </h3>
      <AnswerText answer={answer} note={note} base={reference} />
    </div>
  );
}

/** The experiment of a run, which may be one of its run tasks. */
export function experimentOf(run: string): string {
  return run.split(":")[0] ?? run;
}

function countsFrom(counts: Readonly<Record<string, number>>): Counts {
  const of = (name: string) => counts[name] ?? 0;
  return { lost: of("lost"), won: of("won"), both_wrong: of("both_wrong"), both_partly: of("both_partly"), both_right: of("both_right") };
}
