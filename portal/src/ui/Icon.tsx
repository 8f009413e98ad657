/** Drawings of our own, on a grid of 16. */
const PATHS = {
  experiments: "M2 3.5h12M2 8h12M2 12.5h8",
  compare: "M5 2v12M11 2v12M2 5l3-3 3 3M8 11l3 3 3-3",
  regressions: "M2 3v10.5h12M4 6l3 3 2-2 4 4M13 8v3h-3",
  plans: "M4 1.5h5.5L13 5v9.5H4zM9.5 1.5V5H13M6 8h5M6 11h5",
  cluster: "M2 2.5h12v4H2zM2 9.5h12v4H2zM4.5 4.5h.01M4.5 11.5h.01M7 4.5h4M7 11.5h4",
  settings: "M2 4.5h7M12 4.5h2M2 11.5h2M7 11.5h7M9 3v3M4.5 10v3",
  search: "M7 2.5a4.5 4.5 0 1 0 0 9 4.5 4.5 0 0 0 0-9zM10.3 10.3 14 14",
  check: "M3 8.5 6.5 12 13 4.5",
  cross: "M4 4l8 8M12 4l-8 8",
  dash: "M3.5 8h9",
  dot: "M8 6.5a1.5 1.5 0 1 0 0 3 1.5 1.5 0 0 0 0-3z",
  play: "M5 3.5v9l7-4.5z",
  pause: "M5.5 3.5v9M10.5 3.5v9",
  clock: "M8 2a6 6 0 1 0 0 12A6 6 0 0 0 8 2zM8 5v3.3l2.2 1.4",
  stop: "M4 4h8v8H4z",
  question: "M6 6a2 2 0 1 1 2.7 1.9c-.5.2-.7.5-.7 1.1v.5M8 12h.01",
  warning: "M8 2.5 14.5 13.5h-13zM8 6.5v3.5M8 11.8h.01",
  half: "M8 2a6 6 0 1 0 0 12A6 6 0 0 0 8 2zM8 2v12M10.5 3v10M13 5v6",
  up: "M8 13V3M4 7l4-4 4 4",
  down: "M8 3v10M4 9l4 4 4-4",
  left: "M10 3.5 5.5 8l4.5 4.5",
  right: "M6 3.5 10.5 8 6 12.5",
  chevron: "M4 6l4 4 4-4",
  copy: "M5.5 5.5h8v8h-8zM10.5 5.5v-3h-8v8h3",
  export: "M8 2v8M5 7l3 3 3-3M2.5 12.5v1.5h11v-1.5",
  columns: "M2.5 3h11v10h-11zM6.2 3v10M9.8 3v10",
  star: "M8 2l1.8 3.9 4.2.5-3.1 2.9.8 4.2L8 11.4l-3.7 2.1.8-4.2L2 6.4l4.2-.5z",
  sun: "M8 5a3 3 0 1 0 0 6 3 3 0 0 0 0-6zM8 1.2v1.6M8 13.2v1.6M1.2 8h1.6M13.2 8h1.6M3.2 3.2l1.1 1.1M11.7 11.7l1.1 1.1M12.8 3.2l-1.1 1.1M4.3 11.7l-1.1 1.1",
  moon: "M13 9.8A5.6 5.6 0 0 1 6.2 3 5.6 5.6 0 1 0 13 9.8z",
  screen: "M2 3h12v8H2zM6 14h4M8 11v3",
  link: "M6.5 9.5l3-3M7 4.5l1.3-1.3a2.8 2.8 0 0 1 4 4L11 8.5M9 11.5l-1.3 1.3a2.8 2.8 0 0 1-4-4L5 7.5",
  reload: "M13 8a5 5 0 1 1-1.6-3.7M13 2.5v3h-3",
  table: "M2.5 3h11v10h-11zM2.5 6.5h11M6.5 6.5V13",
  chart: "M2.5 2.5v11h11M5.5 11V8M8.5 11V5M11.5 11V7",
  more: "M3.5 8h.01M8 8h.01M12.5 8h.01",
  menu: "M2 4h12M2 8h12M2 12h12",
  plus: "M8 3v10M3 8h10",
  trash: "M3 4.5h10M6.5 4.5v-2h3v2M4.5 4.5l.6 9h5.8l.6-9",
  edit: "M3 13l.6-2.8 7.2-7.2 2.2 2.2-7.2 7.2zM9.5 4.3l2.2 2.2",
  flag: "M4 14V2.5h8l-2 3 2 3H4",
  note: "M3 3h10v7.5L10.5 13H3zM5.5 6h5M5.5 8.5h3",
  zoom: "M7 2.5a4.5 4.5 0 1 0 0 9 4.5 4.5 0 0 0 0-9zM10.3 10.3 14 14M5 7h4M7 5v4",
  log: "M2.5 3h11v10h-11zM4.5 6l2 2-2 2M8 10.5h3.5",
  user: "M8 2.5a2.7 2.7 0 1 0 0 5.4 2.7 2.7 0 0 0 0-5.4zM3 13.5c.5-2.6 2.4-4 5-4s4.500 1.400 5 4",
  key: "M5.5 7a3 3 0 1 0 0 6 3 3 0 0 0 0-6zM7.700 7.800 13 2.500M11 4.500l2 2",
} as const;

export type IconName = keyof typeof PATHS;

/** A drawing beside words; give it a label only where no words stand beside it. */
export function Icon({ name, label, size = 16 }: { readonly name: IconName; readonly label?: string; readonly size?: number }) {
  return (
    <svg
      width={size}
      height={size}
      viewBox="0 0 16 16"
      fill={name === "play" || name === "stop" ? "currentColor" : "none"}
      stroke="currentColor"
      strokeWidth={1.6}
      strokeLinecap="round"
      strokeLinejoin="round"
      style={{ flex: "none" }}
      {...(label ? { role: "img", "aria-label": label } : { "aria-hidden": true })}
    >
      <path d={PATHS[name]} />
    </svg>
  );
}
