import { describe, expect, it } from "vitest";
import { commandsOf } from "./commands";

const verbs = (state: Parameters<typeof commandsOf>[0]["state"]) => commandsOf({ id: "x", state }).map((one) => one.text.split(" ")[1]);

describe("commands to copy", () => {
  it("pause and cancel what runs", () => {
    expect(verbs("running")).toEqual(["status", "watch", "pause", "cancel"]);
  });

  it("resume what is paused, lost, or was cut off", () => {
    expect(verbs("paused")).toContain("resume");
    expect(verbs("paused")).not.toContain("pause");
    expect(verbs("lost")).toContain("resume");
    expect(verbs("interrupted")).toEqual(["status", "resume"]);
  });

  it("neither pause nor resume what is done", () => {
    expect(verbs("done")).toEqual(["status", "score", "report", "compare"]);
  });
});
