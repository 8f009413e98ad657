/** What we use of Plotly. */
export interface Plotly {
  register(modules: readonly unknown[]): void;
  react(place: HTMLElement, data: unknown, layout: unknown, config: unknown): Promise<unknown>;
  purge(place: HTMLElement): void;
  readonly Plots: { resize(place: HTMLElement): Promise<unknown> };
}
