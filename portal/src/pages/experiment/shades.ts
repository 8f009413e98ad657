/** How strongly the cells of a matrix are coloured by their scores. Pure. */

interface Scored {
  readonly score?: { readonly value: number | null } | null | undefined;
}

/** Steps of a shade: 0 the worst of its column, `STEPS` the best. */
export const STEPS = 4;

/**
 * A step for each cell of a column: datasets differ in difficulty, so a cell is compared with its column alone.
 *
 * Null where there is no score, or nothing to hold it against; the middle where all are alike.
 */
export function shades(column: readonly (Scored | null)[], higherIsBetter: boolean): (number | null)[] {
  const values = column.map((cell) => cell?.score?.value ?? null);
  const known = values.filter((value) => value !== null);
  const low = Math.min(...known);
  const span = Math.max(...known) - low;
  return values.map((value) => {
    if (value === null || known.length < 2) return null;
    if (!(span > 0)) return STEPS / 2;
    const share = (value - low) / span;
    return Math.round((higherIsBetter ? share : 1 - share) * STEPS);
  });
}
