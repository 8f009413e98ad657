import { render, screen } from "@testing-library/react";
import { describe, expect, it } from "vitest";
import { Markdown } from "./Markdown";
import { blockOf, inlines } from "./markdown";

describe("Markdown of reports", () => {
  it("shows strong text, code and escaped signs as what they are", () => {
    expect(inlines("**Incomplete: `hpcbench resume x` goes on.** a \\*b\\* \\[0.6, 0.8\\] R&amp;D &#64;x")).toEqual([
      { kind: "strong", inner: [{ kind: "text", text: "Incomplete: " }, { kind: "code", text: "hpcbench resume x" }, { kind: "text", text: " goes on." }] },
      { kind: "text", text: " a *b* [0.6, 0.8] R&D @x" },
    ]);
  });

  it("keeps signs that are escaped, and such without an end", () => {
    expect(inlines("**a \\*\\* b**")).toEqual([{ kind: "strong", inner: [{ kind: "text", text: "a ** b" }] }]);
    expect(inlines("2 ** 3, a ` b")).toEqual([{ kind: "text", text: "2 ** 3, a ` b" }]);
    expect(inlines("``a ` b``")).toEqual([{ kind: "code", text: "a ` b" }]);
  });

  it("shows a table with its heads, its name and its numbers at the end", () => {
    render(<Markdown blocks={["**Who leads**", "| dataset | value |\n|---|--:|\n| a \\| b | 0.7 |\n| c | **1** |"]} />);
    const table = screen.getByRole("region", { name: "Who leads" });
    expect(table.textContent).toBe("datasetvaluea | b0.7c1");
    expect(screen.getByRole("columnheader", { name: "value" }).dataset["end"]).toBe("true");
  });

  it("shows lists and code", () => {
    expect(blockOf("- one\n- **two**")).toMatchObject({ kind: "list", items: [[{ text: "one" }], [{ kind: "strong" }]] });
    expect(blockOf("```\n<b>x</b>\n```")).toEqual({ kind: "code", text: "<b>x</b>" });
  });

  it.each([
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(2)>",
    "[click](javascript:alert(3))",
    "![x](https://evil.example/leak.png)",
    "**<svg onload=alert(4)>**",
    "`<iframe srcdoc=x>`",
    "| a |\n|---|\n| <object data=x> |",
  ])("makes no element of what is hostile: %s", (text) => {
    const { container } = render(<Markdown blocks={[text]} />);
    expect(container.querySelector("script, img, svg, a, iframe, object, [onerror], [onload]")).toBeNull();
    const [kept = ""] = /<.*>|\[.*\)|!.*\)/.exec(text) ?? [];
    expect(container.textContent).toContain(kept);
  });

  it("takes no longer for signs without end", () => {
    for (const sign of ["**", "`", "\\", "**a", "` `` ", "&amp;", "\\*"]) inlines(sign.repeat(20_000));
    expect(blockOf(`|${"\\|".repeat(100_000)}`).kind).toBe("paragraph");
  });
});
