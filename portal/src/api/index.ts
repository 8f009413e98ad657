export { apiUrl, ask, FaultError, post, send, url } from "./client";
export { type Pages, queryOf, type Rows, useApi, useMutate, usePages } from "./hooks";
export type { Answer, Params } from "./types";
