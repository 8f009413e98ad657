import { useEffect, useMemo, useRef } from "react";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { moment, number } from "../format";
import { useTheme } from "../look";
import type { Group } from "./groups";
import { marksPlugin } from "./marks";
import styles from "./Strips.module.css";

type Marks = readonly (readonly [number, string])[];
/** First and last time of all strips: they stand under each other, and a moment is at the same place in each. */
type Span = readonly [number, number];

const SERIES = 7;

/** A moment of the axis, as exact as its steps. */
function tickOf(time: number, step: number): string {
  const told = moment(time);
  return step >= 86_400 ? told.slice(5, 10) : told.slice(11, step < 60 ? 19 : 16);
}

/** Where no cursor is, the legend says the last reading. */
function restOnLast(plot: uPlot): void {
  if (typeof plot.cursor.idx !== "number") plot.setLegend({ idx: plot.data[0].length - 1 }, false);
}

interface Drawing {
  readonly group: Group;
  readonly marks: Marks;
  /** Whether marks have their words: those of the first strip, the others have lines. */
  readonly worded: boolean;
}

function optionsOf({ group, marks, worded }: Drawing, span: () => Span, width: number): uPlot.Options {
  const css = getComputedStyle(document.documentElement);
  const token = (name: string) => css.getPropertyValue(name).trim();
  const axis = { stroke: token("--soft"), grid: { stroke: token("--line"), width: 1 }, ticks: { show: false }, font: `11px ${token("--sans")}` };
  return {
    width,
    height: 132,
    cursor: { sync: { key: "strips" }, drag: { x: true, y: false }, points: { size: 6 } },
    legend: { live: true },
    scales: { x: { time: true, range: (plot, from, to) => (from === plot.data[0][0] && to === plot.data[0].at(-1) ? [...span()] : [from, to]) }, y: { range: (_, __, most) => [0, Math.max(group.limit ?? 0, most * 1.05, 1e-9)] } },
    axes: [{ ...axis, space: 80, values: (_, times, __, ___, step) => times.map((time) => tickOf(time, step)) }, { ...axis, size: 56, values: (_, values) => values.map((value) => number(value)) }],
    series: [
      { label: "Time", value: (_: uPlot, time: number | null) => moment(time) },
      ...group.names.map((label, place) => ({
        label,
        stroke: token(`--series-${(place % SERIES) + 1}`),
        width: 1.5,
        dash: place >= SERIES ? [6, 3] : [],
        points: { show: false },
        value: (_: uPlot, value: number | null | undefined) => (typeof value === "number" ? `${number(value)} ${group.unit}` : "–"),
      })),
    ],
    hooks: { setCursor: [restOnLast] },
    plugins: [marksPlugin(marks, token("--faint"), worded)],
  };
}

function OneStrip({ group, marks, worded, span }: Drawing & { readonly span: Span }) {
  const place = useRef<HTMLDivElement>(null);
  const drawn = useRef<uPlot>(null);
  const theme = useTheme();
  const newest = useRef({ group, span });
  const shape = JSON.stringify([group.names, group.limit, marks, worded]);
  useEffect(() => {
    newest.current = { group, span };
    drawn.current?.setData(group.data as unknown as uPlot.AlignedData);
    if (drawn.current) restOnLast(drawn.current);
  }, [group, span]);
  useEffect(() => {
    const box = place.current;
    if (!box) return undefined;
    const plot = new uPlot(optionsOf({ group: newest.current.group, marks, worded }, () => newest.current.span, box.clientWidth), newest.current.group.data as unknown as uPlot.AlignedData, box);
    drawn.current = plot;
    restOnLast(plot);
    const observer = new ResizeObserver(() => plot.setSize({ width: box.clientWidth, height: 132 }));
    observer.observe(box);
    return () => {
      observer.disconnect();
      plot.destroy();
      drawn.current = null;
    };
    // A new drawing only where its lines or the theme change; values alone are put into the old one.
    // eslint-disable-next-line react-hooks/exhaustive-deps
  }, [shape, theme]);
  const last = group.data[0].length - 1;
  const told = group.names.map((name, line) => `${name} ${number(group.data[line + 1]?.[last] ?? null)} ${group.unit}`).join(", ");
  return (
    <figure className={styles.strip}>
      <figcaption className={styles.title}>
        {group.title} <span className={styles.unit}>{group.unit}</span>
      </figcaption>
      <div ref={place} role="img" aria-label={`${group.title} over time; last: ${told}`} />
    </figure>
  );
}

/** All strips, under each other. */
export default function Drawn({ groups, marks }: { readonly groups: readonly Group[]; readonly marks: Marks }) {
  const span = useMemo<Span>(() => [Math.min(...groups.map((one) => one.data[0][0] ?? Infinity)), Math.max(...groups.map((one) => one.data[0].at(-1) ?? -Infinity))], [groups]);
  return (
    <>
      {groups.map((group, place) => (
        <OneStrip key={group.what} group={group} marks={marks} worded={place === 0} span={span} />
      ))}
    </>
  );
}
