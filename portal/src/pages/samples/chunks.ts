/** A long list as chunks of rows that are fetched when they come into view. */

/** Rows of a chunk: as many as the API gives at once; a static bundle's pages have as many. */
export const CHUNK = 200;

/** Chunks that rows from `first` to `last` (excluded) lie in. */
export function chunksOf(first: number, last: number): number[] {
  if (last <= first) return [];
  const begin = Math.floor(first / CHUNK);
  const end = Math.floor((last - 1) / CHUNK);
  return Array.from({ length: end - begin + 1 }, (_, at) => begin + at);
}

/** The row of a number, out of chunks that are there. */
export function rowOf<Row>(chunks: ReadonlyMap<number, readonly Row[]>, number: number): Row | undefined {
  return chunks.get(Math.floor(number / CHUNK))?.[number % CHUNK];
}

/** The number of a row that a test finds, out of chunks that are there. */
export function numberOf<Row>(
  chunks: ReadonlyMap<number, readonly Row[]>,
  test: (row: Row) => boolean,
): number | undefined {
  for (const [chunk, rows] of chunks) {
    const at = rows.findIndex(test);
    if (at >= 0) return chunk * CHUNK + at;
  }
  return undefined;
}
