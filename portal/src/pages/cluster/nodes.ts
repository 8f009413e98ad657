import type { ClusterJob, NodeCell, Partition } from "../../api/schema";
import { counted } from "../../ui/format";

/** How a node is, for people: a word and a sign each, never a colour alone. */
export type NodeLook = "free" | "part" | "full" | "away";

export const WORDS: Readonly<Record<NodeLook, string>> = {
  free: "free",
  part: "partly free",
  full: "full",
  away: "takes no jobs",
};

/** What is left of a node: of its GPUs where it has any, else of its CPUs. */
export function lookOf(node: NodeCell): NodeLook {
  if (!node.up) return "away";
  const [used, all] = node.gpus > 0 ? [node.gpus_used, node.gpus] : [node.cpus_used, node.cpus];
  if (used <= 0) return "free";
  return used < all ? "part" : "full";
}

/** A node in a sentence, for those who do not see the grid. */
export function described(node: NodeCell): string {
  const gpus = node.gpus > 0 ? `${node.gpus_used} of ${counted(node.gpus, "GPU")}${node.gpu_type ? ` (${node.gpu_type})` : ""} allocated` : "no GPUs";
  const mine = node.mine > 0 ? `, ${node.mine} of your jobs` : "";
  const why = node.why ? `, ${node.why}` : "";
  return `${node.name}: ${WORDS[lookOf(node)]}, ${gpus}, ${node.cpus_used} of ${node.cpus} CPUs allocated, ${node.state.toLowerCase()}${mine}${why}`;
}

export interface GpuShare {
  readonly type: string;
  readonly total: number;
  readonly free: number;
  readonly held: number;
  readonly down: number;
}

/** GPUs of a partition by type. */
export function gpusOf(partition: Partition): readonly GpuShare[] {
  return Object.entries(partition.gpus)
    .map(([type, total]) => {
      const free = partition.free_gpus?.[type] ?? 0;
      const down = partition.down_gpus?.[type] ?? 0;
      return { type: type || "GPU", total, free, down, held: Math.max(0, total - free - down) };
    })
    .sort((a, b) => b.total - a.total);
}

/** `1-00:00:00` as `1 d`, `08:00:00` as `8 h`; what is no time stays. */
export function limitOf(text: string): string {
  const found = /^(?:(\d+)-)?(\d+):(\d\d):(\d\d)$/.exec(text);
  if (!found) return text === "UNLIMITED" ? "no limit" : text;
  const [days, hours, minutes] = [found[1], found[2], found[3]].map((part) => Number(part ?? 0));
  const parts = [days ? `${days} d` : "", hours ? `${hours} h` : "", minutes ? `${minutes} min` : ""].filter(Boolean);
  return parts.join(" ") || text;
}

const NAMED = 4;

/** Reasons of jobs that wait, each once, with the jobs that it holds for. */
export function waitsOf(jobs: readonly Pick<ClusterJob, "id" | "why">[]): readonly { readonly why: string; readonly ids: string }[] {
  const found = new Map<string, string[]>();
  for (const { id, why } of jobs) if (why) found.set(why, [...(found.get(why) ?? []), id]);
  return [...found].map(([why, ids]) => {
    const more = ids.length > NAMED ? ` and ${ids.length - NAMED} more` : "";
    return { why, ids: ids.slice(0, NAMED).join(", ") + more };
  });
}
