import { render, screen } from "@testing-library/react";
import { expect, it } from "vitest";
import type { Box } from "../../api/schema";
import { Boxes } from "./Boxes";
import { crowded } from "./crowded";

const box = (at: number): Box => ({ image: 0, left: 0.1 * at, top: 0, width: 0.1, height: 0.5, label: `word ${at}`, of: "reference" });

const draw = (count: number) => {
  const boxes = Array.from({ length: count }, (_, at) => box(at));
  render(<Boxes boxes={boxes} view={{ x: 5, y: 7, scale: 2 }} size={{ width: 100, height: 50 }} />);
  return screen.getByRole("list", { name: "Boxes" });
};

it("boxes stand where they are on the image, with what is there", () => {
  const item = draw(2).lastElementChild as HTMLElement;
  expect([item.style.left, item.style.top, item.style.width, item.style.height]).toEqual(["25px", "7px", "20px", "50px"]);
  expect(item.textContent).toBe("word 1, reference");
});

it("labels that would hide other boxes wait for the pointer, and are told all the same", () => {
  const list = draw(31);
  expect(list.className).toContain("crowded");
  expect(list.textContent).toContain("word 30, reference");
});

it("labels that have room are always there: of few boxes, or of those that one has zoomed into", () => {
  const lines = [0.1, 0.2, 0.3].map((top) => ({ ...box(0), top, height: 0.05 }));
  expect(crowded(lines, { width: 100, height: 200 })).toBe(true);
  expect(crowded(lines, { width: 200, height: 400 })).toBe(false);
  expect(crowded([box(0), box(4)], { width: 500, height: 100 })).toBe(false);
  expect(crowded([box(0), { ...box(0), of: "answer" }], { width: 10, height: 10 })).toBe(false);
  const below = lines.map((one) => ({ ...one, of: "answer" as const }));
  expect([crowded(below, { width: 100, height: 200 }), crowded(below, { width: 200, height: 400 })]).toEqual([true, false]);
});
