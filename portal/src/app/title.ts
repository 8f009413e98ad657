import { useEffect } from "react";
import { progress as percentDone } from "../ui/format";

const NAME = "hpcbench";

function icon(progress: number | null): string {
  if (progress === null) return "./icon.svg";
  const round = 2 * Math.PI * 11;
  const ring = `<circle cx="16" cy="16" r="11" fill="none" stroke="#0072b2" stroke-width="6" stroke-dasharray="${progress * round} ${round}" transform="rotate(-90 16 16)"/>`;
  const svg = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32"><circle cx="16" cy="16" r="11" fill="none" stroke="#8b94a1" stroke-opacity=".4" stroke-width="6"/>${ring}</svg>`;
  return `data:image/svg+xml,${encodeURIComponent(svg)}`;
}

/** Title and icon of the tab; both show the progress of the page's subject.
 *
 * @param progress - share done; null: nothing is under way
 */
export function usePageTitle(title: string, { progress = null }: { readonly progress?: number | null } = {}): void {
  // To the nearest percent: the icon is not redrawn with every answer.
  const share = progress === null || progress >= 1 ? null : Math.floor(progress * 100) / 100;
  useEffect(() => {
    document.title = [share === null ? "" : `${percentDone(share)} –`, title, title ? `· ${NAME}` : NAME].filter(Boolean).join(" ");
  }, [title, share]);
  useEffect(() => {
    const link = document.querySelector<HTMLLinkElement>('link[rel="icon"]');
    if (link) link.href = icon(share);
    return () => {
      if (link) link.href = icon(null);
    };
  }, [share]);
}
