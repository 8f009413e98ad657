import { cleanup, configure } from "@testing-library/react";
import { afterEach, vi } from "vitest";

// What jsdom lacks, as little of it as the components ask for.
class NoResizeObserver {
  observe(): void {
    // Nothing is laid out.
  }

  unobserve(): void {
    // Nothing is laid out.
  }

  disconnect(): void {
    // Nothing is laid out.
  }
}

// Not by `vi.stubGlobal`: that is taken back after each test.
Object.assign(globalThis, {
  matchMedia: (media: string) => Object.assign(new EventTarget(), { media, matches: false, onchange: null }),
  ResizeObserver: NoResizeObserver,
});
// Long lists draw what is in view: every scroller is ten rows high.
Object.defineProperty(Element.prototype, "clientHeight", { configurable: true, get: () => 320 });
Object.defineProperty(Element.prototype, "clientWidth", { configurable: true, get: () => 1000 });
Element.prototype.scrollIntoView = () => undefined;
Element.prototype.scrollTo = () => undefined;
window.scrollTo = () => undefined;
HTMLDialogElement.prototype.showModal = function showModal() {
  this.open = true;
};
HTMLDialogElement.prototype.close = function close() {
  this.open = false;
};

// A slow machine is no fault.
configure({ asyncUtilTimeout: 15_000 });
afterEach(() => {
  cleanup();
  // All files share a window, so its clock too.
  vi.useRealTimers();
});
