import type { TrendRow } from "../../api/schema";
import { moment, number } from "../../ui/format";
import { drawn, type Frame } from "./line";
import styles from "./TrendChart.module.css";

const FRAME: Frame = { width: 400, height: 190, left: 46, right: 10, top: 12, bottom: 24 };

/** A figure over its runs: a line with its interval as a band, and where its level changed. */
export function TrendChart({ row, change }: { readonly row: TrendRow; readonly change: string }) {
  const { points, changes } = row;
  const line = drawn(
    points.map((point) => ({ ...point, low: point.low ?? null, high: point.high ?? null })),
    FRAME,
  );
  const placeOf = (experiment: string) => line.places[points.findIndex((point) => point.experiment === experiment)];
  const first = points[0];
  const last = points.at(-1);
  const floor = FRAME.height - FRAME.bottom;
  return (
    <figure className={styles["figure"]}>
      <svg viewBox={`0 0 ${FRAME.width} ${FRAME.height}`} role="img" aria-label={`${row.name} of ${row.run_task} over ${points.length} runs; the table below has its values`}>
        {line.ticks.map(({ value, y }) => (
          <g key={value}>
            <line className={styles["grid"]} x1={FRAME.left} x2={FRAME.width - FRAME.right} y1={y} y2={y} />
            <text className={styles["tick"]} x={FRAME.left - 6} y={y + 4} textAnchor="end">
              {value}
            </text>
          </g>
        ))}
        {changes.map((one) => {
          const at = placeOf(one.first);
          return (
            at && (
              <g key={one.id} className={one.id === change ? styles["looked"] : undefined}>
                <line className={styles["mark"]} x1={at.x} x2={at.x} y1={FRAME.top} y2={floor} />
                <text className={styles["arrow"]} x={at.x} y={FRAME.top + 2} textAnchor="middle">
                  {one.worse ? "▼" : "▲"}
                </text>
              </g>
            )
          );
        })}
        <path className={styles["band"]} d={line.band} />
        <path className={styles["line"]} d={line.path} />
        {line.places.map(({ x, y }, at) => (
          <circle key={at} className={styles["point"]} cx={x} cy={y} r={3.5}>
            <title>
              {points[at]?.experiment}: {points[at]?.value}
            </title>
          </circle>
        ))}
        <text className={styles["tick"]} x={FRAME.left} y={FRAME.height - 6}>
          {first ? moment(first.time).slice(0, 10) : ""}
        </text>
        <text className={styles["tick"]} x={FRAME.width - FRAME.right} y={FRAME.height - 6} textAnchor="end">
          {last && last !== first ? moment(last.time).slice(0, 10) : ""}
        </text>
      </svg>
      <details>
        <summary>Table</summary>
        <TrendTable row={row} />
      </details>
    </figure>
  );
}

function TrendTable({ row }: { readonly row: TrendRow }) {
  return (
    <div className={styles["scroll"]}>
      <table className={styles["table"]} aria-label={`Values of ${row.name}`}>
        <thead>
          <tr>
            <th scope="col">when</th>
            <th scope="col">experiment</th>
            <th scope="col">value</th>
            <th scope="col">95 % interval</th>
          </tr>
        </thead>
        <tbody>
          {[...row.points].reverse().map((point) => (
            <tr key={point.experiment}>
              <td>{moment(point.time).slice(0, 16)}</td>
              <td>{point.experiment}</td>
              <td>{number(point.value)}</td>
              <td>{typeof point.low === "number" && typeof point.high === "number" ? `${number(point.low)} to ${number(point.high)}` : "none"}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
