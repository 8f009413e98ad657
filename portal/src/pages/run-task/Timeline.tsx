import { useId, useMemo, useState } from "react";
import type { Phase } from "../../api/schema";
import { useWidth } from "../../parts/use-width";
import { Button, Empty, Panel, Scroller, useNow } from "../../ui";
import { counted, duration, moment, percent } from "../../ui/format";
import { laidOut, type Lane, type Timeline as Drawn, WORDS } from "./timeline-layout";
import { Patterns } from "./TimelinePatterns";
import styles from "./timeline.module.css";

/** Lanes drawn at once. */
const FEW = 12;
const LANE = 26;
const BAR = 18;
const AXIS = 24;

/** Queued, loading, asking, evaluating: a lane a worker, as a drawing and as a table. */
export function Timeline({ phases, begun }: { readonly phases: readonly Phase[]; readonly begun: boolean }) {
  const [all, setAll] = useState(false);
  const [table, setTable] = useState(false);
  const [width, measure] = useWidth();
  const open = phases.some((one) => one.end === null);
  const now = useNow();
  const drawn = useMemo(() => laidOut(phases, open ? now : 0, Math.max(3, Math.floor(width / 110))), [phases, open, now, width]);
  const lanes = all ? drawn.lanes : drawn.lanes.slice(0, FEW);
  const actions = drawn.lanes.length > 0 && (
    <Button kind="quiet" small icon={table ? "chart" : "table"} aria-pressed={table} onClick={() => setTable(!table)}>
      {table ? "Timeline" : "Table"}
    </Button>
  );
  return (
    <Panel title="Timeline" actions={actions}>
      {drawn.lanes.length === 0 ? (
        <Empty title={begun ? "No times are recorded" : "Nothing has happened yet"}>
          {begun ? "There are answers, but no events of the workers." : "Its jobs wait to be submitted or to start."}
        </Empty>
      ) : (
        <div ref={measure} className={styles.whole}>
          <Totals drawn={drawn} />
          {table ? <PhaseTable lanes={drawn.lanes} /> : width > 0 && <Drawing drawn={drawn} lanes={lanes} width={width} />}
          {!table && drawn.lanes.length > FEW && (
            <Button small kind="quiet" onClick={() => setAll(!all)}>
              {all ? "Fewer workers" : `All ${counted(drawn.lanes.length, "worker")}`}
            </Button>
          )}
        </div>
      )}
    </Panel>
  );
}

/** What took how long, all lanes together; the legend as well. */
function Totals({ drawn }: { readonly drawn: Drawn }) {
  const base = useId();
  return (
    <ul className={styles.totals}>
      {drawn.totals.map(({ what, seconds, share }, place) => (
        <li key={what}>
          <svg width={16} height={12} aria-hidden>
            {place === 0 && <Patterns base={base} />}
            <rect width={16} height={12} rx={2} className={styles[what]} />
            <rect width={16} height={12} rx={2} fill={`url(#${base}-${what})`} />
          </svg>
          {WORDS[what]} <strong>{duration(seconds)}</strong>
          <span className={styles.soft}>{percent(share)}</span>
        </li>
      ))}
    </ul>
  );
}

function Drawing({ drawn, lanes, width }: { readonly drawn: Drawn; readonly lanes: readonly Lane[]; readonly width: number }) {
  const base = useId();
  const label = width < 520 ? 84 : 150;
  const room = width - label - 8;
  const height = lanes.length * LANE + AXIS;
  const day = drawn.end - drawn.begin > 20 * 3600;
  return (
    <svg width={width} height={height} role="img" aria-labelledby={`${base}-told`} className={styles.drawing}>
      <title id={`${base}-told`}>
        {`Timeline of ${counted(drawn.lanes.length, "worker")} from ${moment(drawn.begin)} to ${moment(drawn.end)}. ${drawn.totals.map((one) => `${WORDS[one.what]} ${duration(one.seconds)}`).join(", ")}. The table has each phase.`}
      </title>
      <Patterns base={base} />
      {drawn.ticks.map((tick) => (
        <g key={tick.at} transform={`translate(${label + tick.left * room} 0)`}>
          <line y2={height - AXIS} className={styles.tick} />
          <text y={height - 8} className={styles.time} textAnchor={tick.left < 0.04 ? "start" : tick.left > 0.96 ? "end" : "middle"}>
            {day ? moment(tick.at).slice(5, 16) : moment(tick.at).slice(11, drawn.end - drawn.begin < 600 ? 19 : 16)}
          </text>
        </g>
      ))}
      {lanes.map((lane, place) => (
        <g key={lane.worker} transform={`translate(0 ${place * LANE})`}>
          <text x={0} y={17} className={styles.lane}>
            {short(lane.worker, label)}
            <title>{[lane.worker, lane.node].filter(Boolean).join(" on ")}</title>
          </text>
          {lane.bars.map((bar) => {
            const wide = Math.max(2, bar.width * room);
            const told = `${WORDS[bar.what]}: ${duration(bar.end - bar.begin)}, from ${moment(bar.begin)}${bar.open ? ", still running" : ` to ${moment(bar.end)}`}`;
            return (
              <g key={`${bar.what} ${bar.begin}`} transform={`translate(${label + bar.left * room} ${(LANE - BAR) / 2})`}>
                <title>{told}</title>
                <rect width={wide} height={BAR} rx={2} className={styles[bar.what]} />
                <rect width={wide} height={BAR} rx={2} fill={`url(#${base}-${bar.what})`} />
                {wide > 92 && (
                  <text x={6} y={13} className={styles.inside}>
                    {duration(bar.end - bar.begin)}
                  </text>
                )}
                {bar.open && <path d={`M${wide} 0l5 ${BAR / 2}l-5 ${BAR / 2}z`} className={styles[bar.what]} />}
              </g>
            );
          })}
        </g>
      ))}
    </svg>
  );
}

function short(name: string, room: number): string {
  const most = Math.floor(room / 7.2);
  return name.length > most ? `…${name.slice(1 - most)}` : name;
}

function PhaseTable({ lanes }: { readonly lanes: readonly Lane[] }) {
  return (
    <Scroller className={styles.scroll} label="Phases">
      <table className={styles.table}>
        <thead>
          <tr>
            {["Worker", "Node", "What", "From", "To", "Took"].map((head) => (
              <th key={head} scope="col">
                {head}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {lanes.flatMap((lane) =>
            lane.bars.map((bar) => (
              <tr key={`${lane.worker} ${bar.what} ${bar.begin}`}>
                <th scope="row">{lane.worker}</th>
                <td>{lane.node || "–"}</td>
                <td>{WORDS[bar.what]}</td>
                <td>{moment(bar.begin)}</td>
                <td>{bar.open ? "still running" : moment(bar.end)}</td>
                <td>{duration(bar.end - bar.begin)}</td>
              </tr>
            )),
          )}
        </tbody>
      </table>
    </Scroller>
  );
}
