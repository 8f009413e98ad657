import { createMemoryHistory } from "@tanstack/react-router";
import { act, render } from "@testing-library/react";
import { vi } from "vitest";
import { App } from "../app/App";
import { begin } from "../app/session";
import { type Served, serve as answer } from "./serve";

export { FakeEventSource, SESSION, type Served } from "./serve";

/** Answers requests by path below the API; what is not there gets a 404. Returns the requests that came. */
export function serve(answers: Served): ReturnType<typeof answer> {
  return answer(answers);
}

/** The whole client at a place, signed in; `serve` says what it is answered. */
export async function renderAt(place: string) {
  await act(() => begin(null));
  const history = createMemoryHistory({ initialEntries: [place] });
  const shown = render(<App history={history} />);
  await vi.dynamicImportSettled();
  return { ...shown, history };
}
