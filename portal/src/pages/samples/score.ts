/** What a sample's score amounts to. */

export type Tone = "right" | "partly" | "wrong";

/** Right is the best a share can be, wrong the worst; metrics without those ends are partly right in between. */
export function toneOf(value: number, moreIsBetter: boolean): Tone {
  const good = moreIsBetter ? value : 1 - value;
  if (good >= 1) return "right";
  return good <= 0 ? "wrong" : "partly";
}
