import type { DefinitionRow } from "../../api/schema";

export const ORIGINS: Readonly<Record<DefinitionRow["origin"], string>> = {
  own: "Yours",
  shipped: "Shipped with hpcbench",
  site: "Cluster",
  user: "Your registry",
};

/** Definitions that have every word in their name or folder. */
export function filtered(rows: readonly DefinitionRow[], text: string, own: boolean): readonly DefinitionRow[] {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  return rows.filter((row) => {
    const said = `${row.name} ${row.folder}`.toLowerCase();
    return (!own || row.origin === "own") && words.every((word) => said.includes(word));
  });
}

/** Kind → how many definitions there are. */
export function byKind(rows: readonly DefinitionRow[]): ReadonlyMap<string, number> {
  const found = new Map<string, number>();
  for (const row of rows) found.set(row.kind, (found.get(row.kind) ?? 0) + 1);
  return found;
}
