import { fireEvent, render, screen, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { describe, expect, it, vi } from "vitest";
import type { Rows } from "../../api/hooks";
import { scaleOf, TALLEST } from "./scale";
import { Table } from "./Table";
import { type Column, shownColumns } from "./types";
import { moved } from "./useRoving";

interface Row {
  readonly id: string;
}

const COLUMNS: readonly Column<Row>[] = [
  { id: "id", head: "Name", width: 100, sort: "id", cell: (row) => <a href={`#${row.id}`}>{row.id}</a> },
  { id: "two", head: "Two", width: 80, align: "end", sort: "two", cell: (row) => `${row.id} two` },
  { id: "three", head: "Three", width: 80, optional: true, cell: () => "three" },
];

const HEIGHT = 320;

function many(count: number, need?: Rows<Row>["need"], known = count): Rows<Row> {
  return { count, total: count, at: (index) => (index < known ? { id: `r${index}` } : undefined), ...(need ? { need } : {}) };
}

describe("a table of a million rows", () => {
  it("draws those in view, and says how many there are", () => {
    render(<Table label="Rows" rows={many(1_000_000)} columns={COLUMNS} rowKey={(row) => row.id} />);
    const grid = screen.getByRole("grid", { name: "Rows" });
    expect(grid.getAttribute("aria-rowcount")).toBe("1000001");
    expect(within(grid).getAllByRole("row").length).toBeLessThan(60);
    expect(screen.getByText("r0")).toBeTruthy();
  });

  it("asks for rows before they come into view, and keeps their place until they are there", () => {
    const need = vi.fn();
    render(<Table label="Rows" rows={many(40, need, 5)} columns={COLUMNS} rowKey={(row) => row.id} />);
    expect(need).toHaveBeenCalled();
    const [first, last] = need.mock.lastCall as [number, number];
    expect([first, last >= 9]).toEqual([0, true]);
    expect(screen.getAllByRole("row").length).toBeGreaterThan(8);
    expect(screen.queryByText("r5")).toBeNull();
  });

  it("stays within what a browser can draw", () => {
    expect(scaleOf(32 * 1000, HEIGHT)).toBe(1);
    const whole = 32 * 1_000_000;
    // At the end of the bar stands the end of the list.
    expect((TALLEST - HEIGHT) * scaleOf(whole, HEIGHT)).toBeCloseTo(whole - HEIGHT);
  });

  it("does not promise a number where nobody has counted to the end", () => {
    render(<Table label="Rows" rows={{ ...many(20), floor: true }} columns={COLUMNS} rowKey={(row) => row.id} />);
    expect(screen.getByRole("grid").getAttribute("aria-rowcount")).toBe("-1");
  });
});

describe("the keyboard", () => {
  const size = { rows: 50, columns: 3 };
  const key = (name: string, ctrlKey = false) => ({ key: name, ctrlKey, metaKey: false });

  it("moves from cell to cell, not beyond the ends", () => {
    expect(moved(key("ArrowDown"), { row: 49, column: 1 }, size)).toEqual({ row: 49, column: 1 });
    expect(moved(key("ArrowUp"), { row: 0, column: 1 }, size)).toEqual({ row: -1, column: 1 });
    expect(moved(key("End", true), { row: 0, column: 0 }, size)).toEqual({ row: 49, column: 2 });
    expect(moved(key("x"), { row: 0, column: 0 }, size)).toBeNull();
  });

  it("stops once in a grid, however many links are in it", async () => {
    render(<Table label="Rows" rows={many(30)} columns={COLUMNS} rowKey={(row) => row.id} />);
    const user = userEvent.setup();
    await user.tab();
    expect(document.activeElement?.textContent).toBe("r0");
    await user.keyboard("{ArrowDown}{ArrowDown}");
    expect(document.activeElement?.textContent).toBe("r2");
    await user.keyboard("{ArrowRight}");
    expect(document.activeElement?.textContent).toBe("r2 two");
    await user.tab();
    expect(screen.getByRole("grid").contains(document.activeElement)).toBe(false);
  });

  it("opens and selects a row", async () => {
    const open = vi.fn();
    const select = vi.fn();
    render(<Table label="Rows" rows={many(30)} columns={COLUMNS} rowKey={(row) => row.id} onOpen={open} selected={new Set(["r1"])} onSelected={select} />);
    const user = userEvent.setup();
    await user.tab();
    await user.keyboard("{ArrowRight}{ArrowRight}{Enter}");
    expect(open).toHaveBeenCalledWith({ id: "r0" });
    await user.keyboard(" ");
    expect(select).toHaveBeenCalledWith(new Set(["r1", "r0"]));
  });
});

describe("columns", () => {
  it("are those chosen, the first one always", () => {
    const names = (chosen?: readonly string[]) => shownColumns(COLUMNS, chosen).map((column) => column.id);
    expect(names()).toEqual(["id", "two"]);
    expect(names([])).toEqual(["id", "two"]);
    expect(names(["three"])).toEqual(["id", "three"]);
  });

  it("sort by their head: figures from the top, then turned around", () => {
    const sort = vi.fn();
    const table = (by: string, order: "asc" | "desc") => <Table label="Rows" rows={many(3)} columns={COLUMNS} rowKey={(row) => row.id} sort={{ by, order }} onSort={sort} />;
    const { rerender } = render(table("id", "asc"));
    expect(screen.getByRole("columnheader", { name: /Name/ }).getAttribute("aria-sort")).toBe("ascending");
    fireEvent.click(screen.getByRole("button", { name: "Two" }));
    expect(sort).toHaveBeenLastCalledWith({ by: "two", order: "desc" });
    rerender(table("two", "desc"));
    fireEvent.click(screen.getByRole("button", { name: "Two" }));
    expect(sort).toHaveBeenLastCalledWith({ by: "two", order: "asc" });
  });
});
