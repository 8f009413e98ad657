import { describe, expect, it } from "vitest";
import type { NodeCell, Partition } from "../../api/schema";
import { described, gpusOf, limitOf, lookOf, waitsOf } from "./nodes";

const node = (more: Partial<NodeCell>): NodeCell => ({
  name: "gpu01", partition: "gpu", state: "MIXED", gpus: 4, gpus_used: 1, cpus: 64, cpus_used: 8, mine: 0, gpu_type: "a100", up: true, why: "", ...more,
});

describe("a node", () => {
  it("is free, partly free, full, or takes no jobs", () => {
    expect(lookOf(node({ gpus_used: 0 }))).toBe("free");
    expect(lookOf(node({}))).toBe("part");
    expect(lookOf(node({ gpus_used: 4 }))).toBe("full");
    expect(lookOf(node({ up: false, gpus_used: 0 }))).toBe("away");
    expect(lookOf(node({ gpus: 0, gpus_used: 0, cpus_used: 64 }))).toBe("full");
  });

  it("is told in words", () => {
    expect(described(node({ mine: 2 }))).toBe("gpu01: partly free, 1 of 4 GPUs (a100) allocated, 8 of 64 CPUs allocated, mixed, 2 of your jobs");
    expect(described(node({ up: false, state: "DOWN", why: "bad fan" }))).toContain("bad fan");
  });
});

describe("a partition's GPUs", () => {
  const partition: Partition = { name: "gpu", up: true, default: true, nodes: 2, idle: 0, time_limit: "1-00:00:00", gpus: { a100: 8, "": 2 }, free_gpus: { a100: 1, "": 2 }, down_gpus: { a100: 4, "": 0 } };
  it("add up to all there are", () => {
    for (const share of gpusOf(partition)) expect(share.free + share.held + share.down).toBe(share.total);
    expect(gpusOf(partition)[0]).toEqual({ type: "a100", total: 8, free: 1, held: 3, down: 4 });
    expect(gpusOf(partition)[1]?.type).toBe("GPU");
  });
});

it("tells time limits as people do", () => {
  expect(limitOf("1-00:00:00")).toBe("1 d");
  expect(limitOf("08:30:00")).toBe("8 h 30 min");
  expect(limitOf("UNLIMITED")).toBe("no limit");
});

it("tells each reason once, with its jobs", () => {
  const jobs = ["1", "2", "3", "4", "5", "6"].map((id) => ({ id, why: id === "6" ? "" : "waits for 2 GPUs" }));
  expect(waitsOf(jobs)).toEqual([{ why: "waits for 2 GPUs", ids: "1, 2, 3, 4 and 1 more" }]);
});
