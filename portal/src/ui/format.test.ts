import { describe, expect, it } from "vitest";
import { ago, bytes, count, duration, number, percent, signed } from "./format";

describe("numbers for people", () => {
  it.each([
    [number(0.81234), "0.812"],
    [number(12345.6), "12,346"],
    [number(0), "0"],
    [number(0.0000012), "1.20e-6"],
    [number(null), "–"],
    [number(NaN), "–"],
    [count(1234567), "1,234,567"],
    [percent(0.9999), "99 %"],
    [percent(1), "100 %"],
    [signed(-0.5), "−0.500"],
    [signed(0), "±0"],
    [bytes(1536), "1.50 KiB"],
    [duration(0.0451), "45.1 ms"],
    [duration(59.7), "1 min"],
    [duration(3720), "1 h 2 min"],
    [duration(90_000), "1 d 1 h"],
    [ago(130), "2 min ago"],
  ])("%s", (shown, expected) => {
    expect(shown).toBe(expected);
  });
});
