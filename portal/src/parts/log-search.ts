import { flag, number, text } from "../app/search";

/** The search part of the address of a page that shows devices and logs. */
export const LOG_SEARCH = { worker: text(), log: text(), find: text(), only: flag(), wrap: flag(true), at: number() };
