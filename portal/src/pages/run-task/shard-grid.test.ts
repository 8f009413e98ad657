import { describe, expect, it } from "vitest";
import { cellAt, cornerOf, counted, moved, pathsOf, shapeOf, type Shard } from "./shard-grid";

const shard = (index: number, state: string, answered = 0, samples = 10): Shard => ({
  index, state, answered, samples,
});

describe("the grid of dataset objects", () => {
  it("fits into its width, with smaller cells for more objects", () => {
    for (const count of [1, 100, 1000, 10_000]) {
      const shape = shapeOf(count, 640);
      expect(shape.columns * shape.pitch).toBeLessThanOrEqual(640);
      expect(shape.columns * shape.rows).toBeGreaterThanOrEqual(count);
    }
    expect(shapeOf(10_000, 640).pitch).toBeLessThan(shapeOf(100, 640).pitch);
  });

  it("has one column at least, however narrow", () => {
    expect(shapeOf(5, 3).columns).toBe(1);
  });

  it("tells the cell under a point, and none beside the cells", () => {
    const shape = shapeOf(30, 260);
    const { x, y } = cornerOf(shape, 13);
    expect(cellAt(shape, 30, x + 3, y + 3)).toBe(13);
    expect(cellAt(shape, 30, shape.columns * shape.pitch + 1, 1)).toBeNull();
    expect(cellAt(shape, 12, x + 3, y + 3)).toBeNull();
    expect(cellAt(shape, 30, -1, 3)).toBeNull();
  });

  it("is walked with arrows, by rows too, and never left", () => {
    const shape = shapeOf(30, 260);
    expect(moved(shape, 30, 3, "ArrowDown")).toBe(13);
    expect(moved(shape, 30, 3, "ArrowUp")).toBe(0);
    expect(moved(shape, 30, 29, "ArrowRight")).toBe(29);
    expect(moved(shape, 30, 4, "End")).toBe(29);
    expect(moved(shape, 30, 4, "x")).toBeNull();
  });

  it("draws a path a state, not an element a cell", () => {
    const many = Array.from({ length: 10_000 }, (_, index) => shard(index, index % 2 ? "done" : "pending"));
    expect(pathsOf(many, shapeOf(many.length, 900)).size).toBe(2);
  });

  it("fills a cell by its answered share: some is never none, almost all is never all", () => {
    const shape = shapeOf(4, 400);
    const height = (one: Shard) => {
      const fill = pathsOf([one], shape).get("running")?.fill ?? "";
      return Number(/v(\d+)/.exec(fill)?.[1] ?? 0);
    };
    expect(height(shard(0, "running", 0))).toBe(0);
    expect(height(shard(0, "running", 1, 1000))).toBe(1);
    expect(height(shard(0, "running", 999, 1000))).toBe(shape.size - 1);
    expect(height(shard(0, "running", 5))).toBe(shape.size / 2);
  });

  it("gives states that look alike by fill a sign of their own", () => {
    const shape = shapeOf(4, 400);
    const signs = ["failed", "lost", "silent", "claimed"].map((state) => {
      const paths = pathsOf([shard(0, state)], shape);
      return [...paths.values()][0]?.sign;
    });
    expect(new Set(signs).size).toBe(4);
    expect(signs.every(Boolean)).toBe(true);
  });

  it("counts by state in the order of a shard's life, and takes unknown words for not begun", () => {
    expect(counted([shard(0, "done"), shard(1, "running"), shard(2, "done"), shard(3, "odd")])).toEqual([
      { state: "pending", count: 1 },
      { state: "running", count: 1 },
      { state: "done", count: 2 },
    ]);
  });
});
