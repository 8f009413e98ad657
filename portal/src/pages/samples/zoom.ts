/** How an image is looked at: its scale and where its upper left corner is in the frame. No DOM here. */

export interface Size {
  readonly width: number;
  readonly height: number;
}

export interface View {
  /** Pixels of the frame for a pixel of the image. */
  readonly scale: number;
  /** Pixels of the frame left of the image. */
  readonly x: number;
  /** Pixels of the frame above the image. */
  readonly y: number;
}

/** Largest magnification. */
export const CLOSEST = 16;

/** Factor of a step by key or button. */
export const STEP = 1.25;

/** Pixels of the frame left free around a whole image. */
const MARGIN = 8;

/** How much a small image is blown up to be seen whole. */
const LARGEST_FIT = 3;

/** The whole image in the middle of the frame; small ones larger than they are, but not by much. */
export function fitted(image: Size, frame: Size): View {
  const scale = Math.min(LARGEST_FIT, (frame.width - 2 * MARGIN) / image.width, (frame.height - 2 * MARGIN) / image.height);
  return centred(image, frame, Number.isFinite(scale) && scale > 0 ? scale : 1);
}

/** The image as wide as the frame, from its top: for reading a page. */
export function filling(image: Size, frame: Size): View {
  return held({ scale: frame.width / image.width, x: 0, y: 0 }, image, frame);
}

/** Another scale, with the point `at` of the frame staying where it is. */
export function zoomed(view: View, factor: number, at: { x: number; y: number }, image: Size, frame: Size): View {
  const least = Math.min(fitted(image, frame).scale, 1) / 4;
  const scale = Math.min(Math.max(view.scale * factor, least), CLOSEST);
  const by = scale / view.scale;
  return held({ scale, x: at.x - (at.x - view.x) * by, y: at.y - (at.y - view.y) * by }, image, frame);
}

/** Moved by some pixels of the frame. */
export function panned(view: View, dx: number, dy: number, image: Size, frame: Size): View {
  return held({ ...view, x: view.x + dx, y: view.y + dy }, image, frame);
}

/** A wheel's turn as a factor: smooth for trackpads, a step for a notch. */
export function wheelFactor(delta: number): number {
  return Math.exp(-Math.min(Math.max(delta, -120), 120) * 0.002);
}

/** Never lost out of the frame: smaller than it the image is centred, larger it covers it. */
function held(view: View, image: Size, frame: Size): View {
  return {
    scale: view.scale,
    x: heldAlong(view.x, image.width * view.scale, frame.width),
    y: heldAlong(view.y, image.height * view.scale, frame.height),
  };
}

function heldAlong(at: number, length: number, room: number): number {
  if (length <= room) return (room - length) / 2;
  return Math.min(0, Math.max(room - length, at));
}

function centred(image: Size, frame: Size, scale: number): View {
  return held({ scale, x: 0, y: 0 }, image, frame);
}
