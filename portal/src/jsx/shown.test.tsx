import { render, screen } from "@testing-library/react";
import { expect, it } from "vitest";
import { visible, visibleIn } from "../ui/visible";

it("controls of direction and characters without width are written out", () => {
  expect(visible("\u202egnp.exe")).toBe("⟨U+202E⟩gnp.exe");
  expect(visible("a\u200bb\u2066c\u{e0041}")).toBe("a⟨U+200B⟩b⟨U+2066⟩c⟨U+E0041⟩");
  expect(visibleIn({ a: ["\u202e"], n: 3, b: null })).toEqual({ a: ["⟨U+202E⟩"], n: 3, b: null });
});

it("letters stay, and joiners that they need", () => {
  for (const text of ["שלום 12", "مرحبا", "می\u200cخواهم", "क्\u200dष", "👩\u200d👧", "❤\ufe0f\u200d🔥", "naïve – 数字", "€ 12"]) expect(visible(text)).toBe(text);
  expect(visible("pay\u200dpal")).toBe("pay⟨U+200D⟩pal");
});

it("every text and label of an element is shown so, whatever component makes it", () => {
  const name = "a\u202eb";
  render(
    <button type="button" title={name} aria-label={`Open ${name}`} data-name={name}>
      {name}, {[name, <b key="b">{name}</b>]}
    </button>,
  );
  const button = screen.getByRole("button");
  expect(button.textContent).toBe("a⟨U+202E⟩b, a⟨U+202E⟩ba⟨U+202E⟩b");
  expect(button.title).toBe("a⟨U+202E⟩b");
  expect(button.getAttribute("aria-label")).toBe("Open a⟨U+202E⟩b");
  expect(button.dataset["name"]).toBe(name);
});

it("what is edited and sent stays as it is", () => {
  const name = "a\u202eb";
  render(<input aria-label="Name" defaultValue={name} />);
  expect(screen.getByRole<HTMLInputElement>("textbox").value).toBe(name);
});
