import { useEffect, useState } from "react";

import { imageSource } from "../../api/bundle";
import type { Size } from "./zoom";

/** Images that were shown last, decoded: going back and forth waits for nothing. */
const kept = new Map<string, HTMLImageElement>();
const KEPT = 12;

/** Begins to fetch an image that is likely to be shown next. */
export function prefetchImage(src: string): HTMLImageElement {
  const known = kept.get(src);
  const image = known ?? new Image();
  kept.delete(src);
  kept.set(src, image);
  const oldest = kept.keys().next();
  if (kept.size > KEPT && !oldest.done) kept.delete(oldest.value);
  if (!known) {
    image.decoding = "async";
    const source = imageSource(src);
    if (typeof source === "string") image.src = source;
    else void source.then((address) => (image.src = address), () => image.dispatchEvent(new Event("error")));
  }
  return image;
}

/** An image's own size once it has come; `failed` where it does not. */
export function useImage(src: string | null): { readonly size: Size | null; readonly failed: boolean } {
  const [seen, setSeen] = useState<{ src: string; size: Size | null } | null>(null);
  useEffect(() => {
    if (src === null) return;
    const image = prefetchImage(src);
    const leave = new AbortController();
    const done = () => setSeen({ src, size: { width: image.naturalWidth, height: image.naturalHeight } });
    const failed = () => {
      kept.delete(src);
      setSeen({ src, size: null });
    };
    if (image.complete && image.naturalWidth > 0) queueMicrotask(done);
    image.addEventListener("load", done, leave);
    image.addEventListener("error", failed, leave);
    return () => leave.abort();
  }, [src]);
  const own = seen?.src === src ? seen : null;
  return { size: own?.size ?? null, failed: own !== null && own.size === null };
}
