import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import react from "@vitejs/plugin-react";
import type { Plugin } from "vite";
import { defineConfig } from "vitest/config";

function beside(path: string): string {
  return fileURLToPath(new URL(path, import.meta.url));
}

/** Puts the script that picks the theme before anything is painted: a file of its own, the CSP allows no inline one. */
function themeFirst(): Plugin {
  const source = readFileSync(new URL("src/boot/theme.js", import.meta.url), "utf-8");
  const name = `assets/theme-${createHash("sha256").update(source).digest("hex").slice(0, 8)}.js`;
  let built = false;
  return {
    name: "theme-first",
    configResolved(config) {
      built = config.command === "build";
    },
    generateBundle() {
      this.emitFile({ type: "asset", fileName: name, source });
    },
    transformIndexHtml() {
      const src = built ? `./${name}` : "/src/boot/theme.js";
      return [{ tag: "script", attrs: { src }, injectTo: "head-prepend" as const }];
    },
  };
}

const server = process.env["HPCBENCH_PORTAL"] ?? "http://127.0.0.1:8787";

export default defineConfig({
  base: "./",
  // Every text of a page passes `src/jsx/shown.ts`.
  plugins: [react({ jsxImportSource: "hpcbench" }), themeFirst()],
  // Plotly's sources name it as Node does.
  define: { global: "globalThis" },
  resolve: {
    // A sixth of Plotly that no figure of ours needs.
    alias: [
      { find: /^hpcbench\/(jsx(?:-dev)?-runtime)$/, replacement: beside("src/jsx/$1.ts") },
      { find: /^culori$/, replacement: beside("src/ui/chart/colours.ts") },
      { find: /^@plotly\/d3-sankey-circular$/, replacement: beside("src/ui/chart/straight.ts") },
      { find: /^\.\/components\/(annotations3d|images|updatemenus|sliders|rangeslider|rangeselector)$/, replacement: beside("src/ui/chart/no-component.ts") },
      { find: /^maplibre-gl\/dist\/maplibre-gl\.css$/, replacement: beside("src/ui/chart/none.css") },
    ],
  },
  build: {
    outDir: "../hpcbench/portal/static",
    emptyOutDir: true,
    sourcemap: false,
    target: "es2022",
    modulePreload: { polyfill: false },
    assetsInlineLimit: 0,
    chunkSizeWarningLimit: 1500,
  },
  server: { proxy: { "/api": { target: server, ws: true } } },
  test: {
    environment: "jsdom",
    // A window and React for each of 54 files would take four times as long.
    isolate: false,
    include: ["src/**/*.test.{ts,tsx}"],
    setupFiles: ["src/testing/setup.ts"],
    css: { modules: { classNameStrategy: "non-scoped" } },
    restoreMocks: true,
    testTimeout: 60_000,
    unstubGlobals: true,
  },
});
