import js from "@eslint/js";
import a11y from "eslint-plugin-jsx-a11y";
import hooks from "eslint-plugin-react-hooks";
import { defineConfig, globalIgnores } from "eslint/config";
import typescript from "typescript-eslint";

const FULL = process.env.HPCBENCH_FULL === "1";

// The further rules compile each component: a third of the time of all rules, left to `make test-full`.
const HOOKS = { plugins: { "react-hooks": hooks }, rules: { "react-hooks/rules-of-hooks": "error", "react-hooks/exhaustive-deps": "error" } };

export default defineConfig(
  globalIgnores(["node_modules", "src/api/schema.d.ts"]),
  {
    files: ["src/**/*.{ts,tsx}", "vite.config.ts"],
    extends: [js.configs.recommended, typescript.configs.strictTypeChecked, a11y.flatConfigs.strict, FULL ? hooks.configs.flat["recommended-latest"] : HOOKS],
    languageOptions: { parserOptions: { projectService: true, tsconfigRootDir: import.meta.dirname } },
    // A comment that allows what only `make test-full` looks for is of use there.
    linterOptions: { reportUnusedDisableDirectives: FULL ? "error" : "off" },
    rules: {
      // What a model or a dataset wrote must never become markup.
      "no-restricted-syntax": ["error", { selector: "JSXAttribute[name.name='dangerouslySetInnerHTML']", message: "Text of others is never markup." }],
      "no-eval": "error",
      "no-restricted-globals": ["error", { name: "localStorage", message: "Use src/storage: it fails where storage is off." }],
      "@typescript-eslint/restrict-template-expressions": ["error", { allowNumber: true }],
      // A third of the time of all rules, for what changes when a library does: `make test-full` asks it.
      "@typescript-eslint/no-deprecated": FULL ? "error" : "off",
      "@typescript-eslint/no-confusing-void-expression": ["error", { ignoreArrowShorthand: true }],
      "@typescript-eslint/consistent-type-imports": "error",
      "@typescript-eslint/no-unused-vars": ["error", { ignoreRestSiblings: true, argsIgnorePattern: "^_" }],
      // A page without search parameters.
      "@typescript-eslint/no-generated-empty-object-type": "off",
      "jsx-a11y/no-noninteractive-element-interactions": ["error", { handlers: ["onClick"] }],
    },
  },
  {
    files: ["scripts/*.mjs", "src/boot/*.js", "eslint.config.js"],
    extends: [js.configs.recommended],
    languageOptions: { globals: { process: "readonly", console: "readonly", document: "readonly", window: "readonly", localStorage: "readonly", matchMedia: "readonly" } },
  },
);
