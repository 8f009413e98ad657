import styles from "./timeline.module.css";

/** Textures over the colours of phases: they tell them apart without colour. */
export function Patterns({ base }: { readonly base: string }) {
  const pattern = (what: string, size: number, path: string) => (
    <pattern id={`${base}-${what}`} width={size} height={size} patternUnits="userSpaceOnUse">
      <path d={path} className={styles.texture} />
    </pattern>
  );
  return (
    <defs>
      {pattern("queued", 6, "M-1 7L7 -1")}
      {pattern("starting", 6, "M-1 -1L7 7")}
      {pattern("loading", 5, "M0 2.5H5")}
      {pattern("evaluation", 5, "M2.5 0V5")}
      {pattern("idle", 6, "M3 3h.6")}
    </defs>
  );
}
