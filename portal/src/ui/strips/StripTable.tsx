import { number } from "../format";
import type { Group } from "./groups";
import styles from "../chart/Chart.module.css";

interface Figures {
  readonly last: number | null;
  readonly mean: number | null;
  readonly most: number | null;
}

function figuresOf(line: readonly (number | null | undefined)[] | undefined): Figures {
  const known = (line ?? []).filter((value): value is number => typeof value === "number");
  if (known.length === 0) return { last: null, mean: null, most: null };
  return { last: known.at(-1) ?? null, mean: known.reduce((sum, value) => sum + value, 0) / known.length, most: Math.max(...known) };
}

/** The strips as figures: last, mean and highest reading of each line. */
export function StripTable({ groups }: { readonly groups: readonly Group[] }) {
  return (
    // Scrolls: the keyboard must reach it.
    // eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex
    <div className={styles.scroll} tabIndex={0} role="group" aria-label="Readings as a table">
      <table className={styles.table}>
        <thead>
          <tr>
            {["Figure", "Device", "Last", "Mean", "Highest", "Unit"].map((head) => (
              <th key={head} scope="col">
                {head}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {groups.flatMap((group) =>
            group.names.map((name, line) => {
              const { last, mean, most } = figuresOf(group.data[line + 1]);
              return (
                <tr key={`${group.what} ${name}`}>
                  <th scope="row">{group.title}</th>
                  <td>{name}</td>
                  <td data-number>{number(last)}</td>
                  <td data-number>{number(mean)}</td>
                  <td data-number>{number(most)}</td>
                  <td>{group.unit}</td>
                </tr>
              );
            }),
          )}
        </tbody>
      </table>
    </div>
  );
}
