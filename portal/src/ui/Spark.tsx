import { number } from "./format";

interface Props {
  readonly values: readonly number[];
  /** What they are. */
  readonly label: string;
  readonly width?: number;
  readonly height?: number;
}

/** A line in small, its last value marked. */
export function Spark({ values, label, width = 72, height = 20 }: Props) {
  const last = values.at(-1);
  if (last === undefined) return null;
  const least = Math.min(...values);
  const range = Math.max(...values) - least;
  const points = values.map((value, place) => {
    const x = values.length === 1 ? width - 4 : 3 + (place * (width - 7)) / (values.length - 1);
    return [x, range === 0 ? height / 2 : height - 4 - ((value - least) / range) * (height - 8)] as const;
  });
  const [x, y] = points.at(-1) ?? [0, 0];
  const told = `${label}: ${values.map(number).join(", ")}`;
  return (
    <svg width={width} height={height} viewBox={`0 0 ${width} ${height}`} role="img" aria-label={told} style={{ display: "block" }}>
      <title>{told}</title>
      <polyline points={points.map(([a, b]) => `${a.toFixed(1)},${b.toFixed(1)}`).join(" ")} fill="none" stroke="var(--faint)" strokeWidth={1.4} strokeLinejoin="round" />
      <circle cx={x} cy={y} r={2.4} fill="var(--series-1)" stroke="var(--paper)" />
    </svg>
  );
}
