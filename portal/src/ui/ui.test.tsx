import { fireEvent, render, screen } from "@testing-library/react";
import { describe, expect, it, vi } from "vitest";
import { FaultError } from "../api/client";
import { Bar, Coded, Diff, FaultBox, ScoreText, Spark, StateChip, Tabs, TextInput, useHotkeys } from ".";
import { pressed } from "./hotkeys";
import { shiftInto } from "./Popover";

describe("differences by words", () => {
  it("say to everybody which words are where", () => {
    const { container } = render(
      <Diff
        words={[
          { kind: "same", text: "the" },
          { kind: "lost", text: "red" },
          { kind: "added", text: "<b>blue</b>" },
        ]}
      />,
    );
    expect(container.querySelector("del")?.textContent).toBe("[only in the reference: red]");
    expect(container.querySelector("ins")?.textContent).toBe("[only in the answer: <b>blue</b>]");
    expect(container.querySelector("b")).toBeNull();
  });

  it("say that an answer without a word is empty, and strike out nothing", () => {
    const { container } = render(<Diff words={[{ kind: "lost", text: "the reference" }]} />);
    expect(container.textContent).toBe("empty");
  });
});

describe("panels of popovers", () => {
  it("stay within the page, their start before their end", () => {
    const page = { left: 48, right: 390 };
    expect(shiftInto({ left: 60, right: 200 }, page)).toBe(0);
    expect(shiftInto({ left: -40, right: 100 }, page)).toBe(92);
    expect(shiftInto({ left: 300, right: 400 }, page)).toBe(-14);
    expect(shiftInto({ left: 60, right: 500 }, page)).toBe(-8);
  });
});

describe("sentences", () => {
  it("show commands between backticks as code, and a backtick alone as it is", () => {
    const { container } = render(<Coded text="mend it, then `hpcbench resume <b>x</b>`" />);
    expect(container.querySelector("code")?.textContent).toBe("hpcbench resume <b>x</b>");
    expect(container.querySelector("b")).toBeNull();
    expect(render(<Coded text="a ` b" />).container.textContent).toBe("a ` b");
  });
});

describe("states", () => {
  it("are told by a word and an icon, not by colour alone", () => {
    const { container } = render(<StateChip state="lost" />);
    expect(container.textContent).toBe("lost");
    expect(container.querySelector("svg")).not.toBeNull();
  });

  it("that are not known have their own word", () => {
    expect(render(<StateChip state="COMPLETING" />).container.textContent).toBe("COMPLETING");
  });
});

describe("figures", () => {
  it("say their interval and n", () => {
    render(<ScoreText score={{ metric: "anls", value: 0.8123, low: 0.79, high: 0.83, n: 1200, documents: 80, higher_is_better: true, unit: "", standing: "" }} />);
    expect(screen.getByText(/anls 0.812, 95 % interval 0.790 to 0.830, n = 1.200 from 80 documents/)).toBeTruthy();
  });

  it("say the unit of a resource metric", () => {
    render(<ScoreText score={{ metric: "ttft_p50", value: 41.5, low: null, high: null, n: 7, documents: 7, higher_is_better: false, unit: "ms", standing: "" }} />);
    expect(screen.getByText(/ttft_p50 41.5 ms, no interval/)).toBeTruthy();
  });

  it("say beside the value of a judge that nothing has calibrated it", () => {
    render(<ScoreText score={{ metric: "judge_binary", value: 0.8, low: 0.7, high: 0.9, n: 100, documents: 50, higher_is_better: true, unit: "", standing: "uncalibrated" }} />);
    expect(screen.getByText("uncalibrated")).toBeTruthy();
  });

  it("never say that all is done before it is", () => {
    render(<Bar value={9_999} max={10_000} label="Samples" />);
    expect(screen.getByRole("progressbar").getAttribute("aria-valuetext")).toBe("99 %");
  });

  it("in a line are readable without it", () => {
    render(<Spark values={[0.5, 0.75]} label="anls" />);
    expect(screen.getByRole("img", { name: "anls: 0.500, 0.750" })).toBeTruthy();
  });
});

describe("faults", () => {
  it("say what to do, and the number in the log", () => {
    const retry = vi.fn();
    render(<FaultBox fault={new FaultError(503, { error: "the disk is slow", remedy: "wait", code: "busy", id: "q7" })} retry={retry} />);
    expect(screen.getByRole("alert").textContent).toMatch(/the disk is slow.*wait.*q7/);
    fireEvent.click(screen.getByRole("button", { name: "Try again" }));
    expect(retry).toHaveBeenCalledOnce();
  });
});

describe("tabs", () => {
  it("are moved by arrows", () => {
    const change = vi.fn();
    render(
      <Tabs label="Views" current="a" onChange={change} tabs={[{ id: "a", label: "A" }, { id: "b", label: "B" }]}>
        panel
      </Tabs>,
    );
    fireEvent.keyDown(screen.getByRole("tab", { name: "A" }), { key: "ArrowLeft" });
    expect(change).toHaveBeenCalledWith("b");
    expect(screen.getByRole("tabpanel", { name: "A" })).toBeTruthy();
  });
});

describe("a line of text", () => {
  it("is told once the typing rests, and follows the address", () => {
    vi.useFakeTimers();
    const change = vi.fn();
    const { rerender } = render(<TextInput label="Filter" value="" delay={200} onChange={change} />);
    const field = screen.getByLabelText<HTMLInputElement>("Filter");
    fireEvent.change(field, { target: { value: "ab" } });
    expect(change).not.toHaveBeenCalled();
    vi.advanceTimersByTime(250);
    expect(change).toHaveBeenCalledWith("ab");
    rerender(<TextInput label="Filter" value="from the address" delay={200} onChange={change} />);
    expect(field.value).toBe("from the address");
  });
});

describe("keys", () => {
  function Page({ act }: { readonly act: () => void }) {
    useHotkeys({ j: ["next", act], "mod+k": ["jump", act] }, "Page");
    return <input aria-label="Text" />;
  }

  it("have one name each", () => {
    expect(pressed(new KeyboardEvent("keydown", { key: "K", metaKey: true }))).toBe("mod+k");
    expect(pressed(new KeyboardEvent("keydown", { key: "?", shiftKey: true }))).toBe("?");
    expect(pressed(new KeyboardEvent("keydown", { key: "G", shiftKey: true }))).toBe("shift+g");
  });

  it("rest while somebody types, but for those with Ctrl", () => {
    const act = vi.fn();
    render(<Page act={act} />);
    fireEvent.keyDown(document.body, { key: "j" });
    expect(act).toHaveBeenCalledTimes(1);
    fireEvent.keyDown(screen.getByLabelText("Text"), { key: "j" });
    expect(act).toHaveBeenCalledTimes(1);
    fireEvent.keyDown(screen.getByLabelText("Text"), { key: "k", ctrlKey: true });
    expect(act).toHaveBeenCalledTimes(2);
  });
});
