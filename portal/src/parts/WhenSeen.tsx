import { type ReactNode, useEffect, useRef, useState } from "react";

interface Props {
  /** Pixels that are kept free until it is seen. */
  readonly height: number;
  readonly children: ReactNode;
}

/** What costs much is made when it comes near the window, and stays then. */
export function WhenSeen({ height, children }: Props) {
  const [seen, setSeen] = useState(false);
  const place = useRef<HTMLDivElement>(null);
  useEffect(() => {
    if (seen || !place.current) return undefined;
    const observer = new IntersectionObserver(([entry]) => setSeen(entry?.isIntersecting ?? false), { rootMargin: "400px" });
    observer.observe(place.current);
    return () => observer.disconnect();
  }, [seen]);
  return seen ? children : <div ref={place} style={{ height }} />;
}
