import { describe, expect, it } from "vitest";

import { grouped } from "./facets";

const none = () => false;
const counts = (n: number): [string, number][] => Array.from({ length: n }, (_, at) => [`v${at}`, 100 - at]);

describe("facets", () => {
  it("that cannot tell samples apart are left out, unless chosen", () => {
    expect(grouped([{ field: "outcome", counts: [["ok", 9]] }], none)).toEqual([]);
    expect(grouped([{ field: "outcome", counts: [["ok", 9]] }], () => true)).toHaveLength(1);
  });

  it("count kinds of mistakes even where there is one kind", () => {
    const [group] = grouped([{ field: "mistake", counts: [["digit dropped", 9]] }], none);
    expect(group?.values.map((one) => one.text)).toEqual(["digit dropped"]);
  });

  it("show the most frequent values, the rest behind a button", () => {
    const [group] = grouped([{ field: "lang", counts: counts(8) }], none);
    expect(group?.values.map((one) => one.value)).toEqual(["v0", "v1", "v2", "v3", "v4"]);
    expect(group?.more).toHaveLength(3);
  });

  it("keep what is chosen in sight", () => {
    const [group] = grouped([{ field: "lang", counts: counts(8) }], (_, value) => value === "v7");
    expect(group?.values.at(-1)?.value).toBe("v7");
  });

  it("are chosen by the first nine digits", () => {
    const groups = grouped([{ field: "outcome", counts: counts(3) }, { field: "lang", counts: counts(9) }], none);
    expect(groups.flatMap((group) => group.values.map((one) => one.digit))).toEqual([1, 2, 3, 4, 5, 6, 7, 8]);
    expect(groups[1]?.values[0]).toMatchObject({ field: "lang", value: "v0", digit: 4 });
  });
});
