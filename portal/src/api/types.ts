import type { paths, Polled } from "./schema";

type Prefixed = "/api/v1";

/** The path without its prefix. */
type Short<P> = P extends `${Prefixed}${infer Rest}` ? Rest : never;
type Verb = "get" | "put" | "post" | "delete";
type Having<V extends Verb> = {
  [P in keyof paths]: paths[P] extends Record<V, object> ? Short<P> : never;
}[keyof paths];

/** Paths that can be read. */
export type GetPath = Having<"get">;
/** Paths that take a verb. */
export type PathOf<V extends Verb> = Having<V>;
export type ChangeVerb = Exclude<Verb, "get">;

type Operation<P, V extends Verb> = `${Prefixed}${P & string}` extends infer Full extends keyof paths
  ? paths[Full] extends Record<V, infer Found>
    ? Found
    : never
  : never;

type Parameters<O> = O extends { parameters: infer Given } ? Given : never;
type Loose<T> = [T] extends [never] ? Record<never, never> : T;
type In<O, Where extends "path" | "query"> =
  Parameters<O> extends { [K in Where]: infer Found }
    ? Found
    : Parameters<O> extends { [K in Where]?: infer Found }
      ? NonNullable<Found>
      : never;

/** Parameters as they are at run time. */
export interface AnyParams {
  readonly path?: Readonly<Record<string, string | number>> | undefined;
  readonly query?: Readonly<Record<string, unknown>> | undefined;
}

/** What a request needs: its ids, and what may be asked of it. */
export type Params<P, V extends Verb = "get"> = AnyParams &
  ([In<Operation<P, V>, "path">] extends [never] ? { readonly path?: undefined } : { readonly path: In<Operation<P, V>, "path"> }) & {
    readonly query?: Partial<Loose<In<Operation<P, V>, "query">>>;
  };

type Json<R> = R extends { content: { "application/json": infer Body } } ? Body : null;
type Good<R> = R extends { 200: infer Ok } ? Ok : R extends { 201: infer Made } ? Made : R extends { 202: infer Taken } ? Taken : never;

/** What comes back. */
export type Answer<P, V extends Verb = "get"> =
  Operation<P, V> extends { responses: infer R } ? ([Good<R>] extends [never] ? null : Json<Good<R>>) : never;

/** What is sent. */
export type Body<P, V extends ChangeVerb> =
  Operation<P, V> extends { requestBody: { content: { "application/json": infer Sent } } }
    ? Sent
    : Operation<P, V> extends { requestBody?: { content: { "application/json": infer Sent } } }
      ? Sent | undefined
      : undefined;

/** A message of the live stream; the description has it only inside of others. */
export type News = Polled["news"][number];
