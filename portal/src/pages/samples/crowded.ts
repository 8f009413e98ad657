import type { Box } from "../../api/schema";
import type { Size } from "./zoom";

/** Boxes above which their labels are too many to read at once. */
const MANY = 30;

/** Pixels of a label, about: its height, and the width of a letter. */
const HEIGHT = 17;
const LETTER = 7;

/** Whether labels would hide other boxes: then the pointer asks for them one by one, until one zooms in.
 *
 * @param shown - the image on the screen, pixels
 */
export function crowded(boxes: readonly Box[], shown: Size): boolean {
  if (boxes.length > MANY) return true;
  return boxes.some((one) => boxes.some((other) => one !== other && one.of === other.of && hides(one, other, shown)));
}

/** Whether the label of a box lies on another one; the reference's stand above, the answer's below. */
function hides(one: Box, other: Box, { width, height }: Size): boolean {
  const edge = (one.of === "answer" ? one.top + one.height : one.top) * height;
  const [top, bottom] = one.of === "answer" ? [edge, edge + HEIGHT] : [edge - HEIGHT, edge];
  const left = one.left * width;
  const right = left + LETTER * one.label.length;
  return other.top * height < bottom && (other.top + other.height) * height > top && other.left * width < right && (other.left + other.width) * width > left;
}
