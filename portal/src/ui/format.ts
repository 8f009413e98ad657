/** Numbers and times for people. */

const NONE = "–";

/** Three figures that count, or all before the point; a dash for none. As in the report. */
export function number(value: number | null | undefined): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return NONE;
  if (value === 0) return "0";
  const size = Math.floor(Math.log10(Math.abs(value)));
  if (size < -4 || size >= 9) return value.toExponential(2);
  return grouped(value.toFixed(Math.max(0, 2 - size)));
}

function grouped(text: string): string {
  const [whole = "", part] = text.split(".");
  const commas = whole.replace(/\B(?=(\d{3})+$)/g, ",");
  return part === undefined ? commas : `${commas}.${part}`;
}

/** A whole number, with commas between thousands. As in the command line and the report. */
export function count(value: number | null | undefined): string {
  return value === null || value === undefined ? NONE : grouped(String(Math.round(value)));
}

/** A share as percent. */
export function percent(share: number | null | undefined, digits = 0): string {
  if (share === null || share === undefined || !Number.isFinite(share)) return NONE;
  const all = share < 1 && share * 100 >= 100 - 0.5 * 10 ** -digits;
  const shown = all ? Math.floor(share * 100 * 10 ** digits) / 10 ** digits : share * 100;
  return `${shown.toFixed(digits)} %`;
}

/** How far something is: whole percent, rounded down everywhere, so that 100 % means done. */
export function progress(share: number): string {
  return `${Math.floor(Math.min(1, Math.max(0, share)) * 100 + 1e-9)} %`;
}

/** With a sign, for differences. */
export function signed(value: number | null | undefined): string {
  if (value === null || value === undefined) return NONE;
  const text = number(Math.abs(value));
  return value > 0 ? `+${text}` : value < 0 ? `−${text}` : "±0";
}

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

/** Bytes. */
export function bytes(value: number | null | undefined): string {
  if (value === null || value === undefined) return NONE;
  let left = value;
  let unit = 0;
  while (Math.abs(left) >= 1024 && unit < UNITS.length - 1) {
    left /= 1024;
    unit += 1;
  }
  return `${unit === 0 ? String(left) : number(left)} ${UNITS[unit] ?? ""}`;
}

/** A stretch of time: the two greatest units. */
export function duration(seconds: number | null | undefined): string {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) return NONE;
  if (seconds < 0.9995) return `${number(seconds * 1000)} ms`;
  if (seconds < 59.5) return `${number(seconds)} s`;
  const whole = Math.round(seconds);
  const days = Math.floor(whole / 86_400);
  const hours = Math.floor((whole % 86_400) / 3600);
  const minutes = Math.floor((whole % 3600) / 60);
  if (days) return hours ? `${days} d ${hours} h` : `${days} d`;
  if (hours) return minutes ? `${hours} h ${minutes} min` : `${hours} h`;
  return whole % 60 ? `${minutes} min ${whole % 60} s` : `${minutes} min`;
}

/** How long ago, roughly. */
export function ago(seconds: number): string {
  if (seconds < 5) return "just now";
  if (seconds < 60) return `${Math.floor(seconds)} s ago`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ago`;
  if (seconds < 86_400) return `${Math.floor(seconds / 3600)} h ago`;
  return `${Math.floor(seconds / 86_400)} d ago`;
}

/** A moment as `2026-11-22 09:09:52`, local time. */
export function moment(time: number | null | undefined): string {
  if (time === null || time === undefined) return NONE;
  const at = new Date(time * 1000);
  if (Number.isNaN(at.getTime())) return NONE;
  const two = (value: number) => String(value).padStart(2, "0");
  return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
}

/** `1 sample`, `2 samples`. */
export function counted(amount: number, one: string, many = `${one}s`): string {
  return `${count(amount)} ${amount === 1 ? one : many}`;
}
