/** Browsers draw nothing beyond some 17 million pixels: a longer list scrolls faster than the bar moves. */
export const TALLEST = 12_000_000;

/** How many pixels of the list a pixel of the scroll bar stands for.
 *
 * @param whole - height of the list, pixels
 * @param seen - height of what is seen of it, pixels
 */
export function scaleOf(whole: number, seen: number): number {
  return whole <= TALLEST ? 1 : (whole - seen) / (TALLEST - seen);
}
