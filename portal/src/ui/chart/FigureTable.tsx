import type { Figure } from "../../api/schema";
import { number } from "../format";
import styles from "./Chart.module.css";

function shown(value: unknown): string {
  if (typeof value === "number") return Number.isInteger(value) ? String(value) : number(value);
  if (value === null || value === undefined) return "–";
  return typeof value === "string" ? value : JSON.stringify(value);
}

/** The figures behind a figure. */
export function FigureTable({ figure }: { readonly figure: Figure }) {
  return (
    // Scrolls in both directions: the keyboard must reach it.
    // eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex
    <div className={styles.scroll} tabIndex={0} role="group" aria-label={`${figure.title}: table`}>
      <table className={styles.table}>
        <thead>
          <tr>
            {figure.columns.map((column) => (
              <th key={column} scope="col">
                {column}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {figure.rows.map((row, place) => (
            <tr key={place}>
              {(row).map((value, column) => (
                <td key={column} data-number={typeof value === "number" || undefined}>
                  {shown(value)}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
